// The second pane: the same session over AHP, folded by this page's own reducers from snapshots and actions.

import { AhpMirror } from "./ahp.js";
import { arrange, link, make, pretty, replace, shortened } from "./dom.js";
import { markdown } from "./markdown.js";

const MOST_FRAMES = 60;
const STATES = { 1: "idle", 2: "failed", 8: "running", 24: "needs an answer" };

export class AhpPane {
  #places;
  #mirror;
  #frames = [];
  #nodes = new Map();
  // Questions that are open, by their id: the same elements in each frame, because a button that is replaced while it is pressed
  // does nothing.
  #questions = new Map();
  #planned = false;
  #mayWrite;

  constructor(places, access, mayWrite) {
    this.#places = places;
    this.#mayWrite = mayWrite;
    this.#mirror = new AhpMirror(access, {
      changed: () => this.#plan(),
      framed: (direction, message) => {
        this.#frames.push(`${direction === "in" ? "←" : "→"} ${shortened(JSON.stringify(message), 600)}`);
        this.#frames.splice(0, this.#frames.length - MOST_FRAMES);
        this.#plan();
      },
    });
    places.form.addEventListener("submit", (event) => {
      event.preventDefault();
      const text = places.message.value;
      if (!text.trim() || places.send.disabled) return;
      this.#mirror.dispatch({ type: "session/turnStarted", turnId: crypto.randomUUID?.() ?? `t${Date.now()}`, userMessage: { text } });
      places.message.value = "";
    });
    places.stop.addEventListener("click", () => {
      const turn = this.#mirror.state?.activeTurn;
      if (turn) this.#mirror.dispatch({ type: "session/turnCancelled", turnId: turn.id });
    });
  }

  // Follow this session; null: none.
  show(uri) {
    if (uri === this.#mirror.uri) return;
    this.#frames = [];
    this.#nodes = new Map();
    this.#questions = new Map();
    replace(this.#places.state);
    if (uri === null) this.#mirror.close();
    else this.#mirror.open(uri);
    this.#plan();
  }

  #plan() {
    if (this.#planned) return;
    this.#planned = true;
    requestAnimationFrame(() => {
      this.#planned = false;
      this.#draw();
    });
  }

  #draw() {
    const { state, status, uri, unfolded } = this.#mirror;
    const places = this.#places;
    places.status.textContent = uri === null ? "Begin or choose a session: it appears here over AHP." : status;
    places.frames.textContent = this.#frames.join("\n");
    places.send.disabled = !this.#mayWrite || state === null || Boolean(state.activeTurn);
    places.stop.disabled = !this.#mayWrite || !state?.activeTurn;
    places.unfolded.hidden = unfolded.size === 0;
    places.unfolded.textContent = `Received and not folded: ${[...unfolded].join(", ")}.`;
    if (state === null) return replace(places.state);
    const atEnd = places.state.scrollHeight - places.state.scrollTop - places.state.clientHeight < 60;
    const turns = [...state.turns, ...(state.activeTurn ? [state.activeTurn] : [])];
    const kept = new Map();
    for (const turn of turns) {
      // States share what is unchanged, so a turn that has not changed is the same object.
      const node = this.#nodes.get(turn.id) ?? { turn: null, element: make("article", { class: "entry assistant", "aria-label": "Turn" }), parts: [] };
      if (node.turn !== turn) this.#turn(node, turn);
      kept.set(turn.id, node);
    }
    this.#nodes = kept;
    arrange(places.state, [this.#summary(state), ...[...kept.values()].map((node) => node.element), ...this.#open(state)]);
    if (atEnd) places.state.scrollTop = places.state.scrollHeight;
  }

  #summary({ summary, lifecycle }) {
    return make(
      "div",
      { class: "row" },
      make("strong", { dir: "auto" }, summary.title || "Without a title"),
      make("span", { class: "badge" }, lifecycle === "ready" ? (STATES[summary.status & 31] ?? String(summary.status)) : lifecycle),
    );
  }

  #turn(node, turn) {
    if (node.turn === null) {
      const files = (turn.userMessage.attachments ?? []).map((file) => make("p", { class: "note" }, `Attached: ${file.label ?? file.uri ?? file.type}`));
      node.head = [make("div", { class: "who" }, "User"), make("div", { class: "markdown", dir: "auto" }, markdown(turn.userMessage.text ?? "")), ...files, make("div", { class: "who" })];
    }
    node.turn = turn;
    node.head.at(-1).textContent = `Turn · ${turn.state ?? "running"}`;
    node.parts = turn.responseParts.map((part, place) => (node.parts[place]?.part === part ? node.parts[place] : { part, element: this.#part(part, turn) }));
    const tail = [];
    if (turn.error) tail.push(make("p", { class: "error" }, `${turn.error.errorType}: ${turn.error.message}`));
    const used = Object.entries(turn.usage ?? {}).filter(([, value]) => typeof value === "number");
    if (used.length) tail.push(make("p", { class: "help" }, used.map(([name, value]) => `${name} ${value}`).join(" · ")));
    arrange(node.element, [...node.head, ...node.parts.map((each) => each.element), ...tail]);
  }

  #part(part, turn) {
    if (part.kind === "markdown") return make("div", { class: "markdown", dir: "auto" }, markdown(part.content));
    if (part.kind === "reasoning") return make("details", { class: "thinking" }, make("summary", {}, "Reasoning"), make("div", { class: "markdown" }, part.content));
    if (part.kind === "toolCall") return this.#call(part.toolCall, turn);
    if (part.kind === "systemNotification") return make("p", { class: "note" }, words(part.content));
    if (part.kind === "contentRef") return make("p", { class: "note" }, "Content, not loaded here: ", part.uri);
    return make("p", { class: "note" }, `A part of the kind ${part.kind}, which this page does not show.`);
  }

  #call(call, turn) {
    const answer = (members) => () => this.#mirror.dispatch({ turnId: turn.id, toolCallId: call.toolCallId, ...members });
    const controls = [];
    if (call.status === "pending-confirmation" && this.#mayWrite) {
      const options = call.options ?? [{ id: null, label: "Allow", kind: "approve" }, { id: null, label: "Deny", kind: "deny" }];
      for (const option of options) {
        const approved = option.kind === "approve";
        const members = { type: "session/toolCallConfirmed", approved, ...(approved ? { confirmed: "user-action" } : { reason: "denied" }) };
        if (option.id !== null) members.selectedOptionId = option.id;
        controls.push(make("button", { type: "button", class: `button small ${approved ? "quiet" : "danger"}`, onclick: answer(members) }, option.label));
      }
    } else if (call.status === "pending-result-confirmation" && this.#mayWrite) {
      controls.push(make("button", { type: "button", class: "button quiet small", onclick: answer({ type: "session/toolCallResultConfirmed", approved: true }) }, "Accept the result"));
      controls.push(make("button", { type: "button", class: "button danger small", onclick: answer({ type: "session/toolCallResultConfirmed", approved: false }) }, "Refuse the result"));
    }
    return make(
      "section",
      { class: `call${controls.length ? " waits" : ""}`, "aria-label": `Tool call ${call.toolName}` },
      make("div", { class: "row" }, make("strong", { dir: "auto" }, call.displayName || call.toolName), make("span", { class: "badge" }, call.status)),
      call.invocationMessage ? make("p", { dir: "auto" }, words(call.invocationMessage)) : null,
      make("pre", { tabindex: "0" }, call.toolInput ?? call.partialInput ?? ""),
      call.selectedOption ? make("p", { class: "help" }, `Chosen: ${call.selectedOption.label}`) : null,
      (call.content ?? []).map(block),
      call.error ? make("p", { class: "error" }, call.error.message) : null,
      call.reasonMessage ? make("p", { class: "help" }, words(call.reasonMessage)) : null,
      controls.length ? make("div", { class: "buttons" }, controls) : null,
    );
  }

  // What waits beside the turns: queued messages, questions, changed files.
  #open(state) {
    const found = (state.queuedMessages ?? []).map((each) => make("p", { class: "note" }, "Queued: ", each.userMessage.text));
    if (state.steeringMessage) found.push(make("p", { class: "note" }, "Steering: ", state.steeringMessage.userMessage.text));
    const questions = new Map((state.inputRequests ?? []).map((request) => [request.id, this.#question(request)]));
    this.#questions = questions;
    found.push(...[...questions.values()].map((each) => each.element));
    const files = state.summary.diffs ?? [];
    if (files.length) found.push(make("p", { class: "note" }, `Files changed: ${files.map((each) => (each.after ?? each.before)?.uri).join(", ")}`));
    return found;
  }

  #question(request) {
    const known = this.#questions.get(request.id);
    if (known?.request === request) return known;
    const decline = () => this.#mirror.dispatch({ type: "session/inputCompleted", requestId: request.id, response: "decline" });
    const element = make("section", { class: "call waits", "aria-label": "Question" },
      make("p", { dir: "auto" }, words(request.message ?? "The agent asks something.")),
      (request.questions ?? []).map((each) => make("p", { class: "note", dir: "auto" }, words(each.message ?? each.title ?? each.id))),
      make("p", { class: "help" }, "This pane shows questions and can decline them. Answer them in the conversation."),
      this.#mayWrite ? make("div", { class: "buttons" }, make("button", { type: "button", class: "button danger small", onclick: decline }, "Decline")) : null);
    return { request, element };
  }
}

function words(text) {
  return typeof text === "string" ? text : (text?.markdown ?? "");
}

function block(content) {
  if (content.type === "text") return make("pre", { tabindex: "0", dir: "auto" }, content.text);
  if (content.type === "resource" || content.type === "terminal") return make("p", { class: "note" }, `${content.type}, not loaded here: `, link(content.uri ?? content.resource, content.uri ?? content.resource));
  return make("details", {}, make("summary", {}, content.type), make("pre", { tabindex: "0" }, shortened(pretty(content), 4000)));
}
