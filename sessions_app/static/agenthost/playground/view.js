// Shows a conversation: one element for each entry, rebuilt only when the entry has changed.

import { arrange, make, picture, pretty, replace } from "./dom.js";
import { GrowingText } from "./growing.js";
import { markdown } from "./markdown.js";

export class ConversationView {
  #root;
  #nodes = new Map();
  // By the call's id, until the session is left: an entry may be rebuilt while the person types an answer to its call.
  #calls = new Map();
  #asks;
  // What had the focus when it was hidden.
  #unfocused = null;

  // `asks(call)` returns the controls for a call that waits, or null.
  constructor(root, asks) {
    this.#root = root;
    this.#asks = asks;
    // The second pane makes the conversation narrower and so longer: its end stays in view.
    let atEnd = true;
    root.addEventListener("scroll", () => (atEnd = this.#isAtEnd()));
    new ResizeObserver(() => atEnd && this.#toEnd()).observe(root);
  }

  show(conversation) {
    const atEnd = this.#isAtEnd();
    const pending = new Set(conversation.pending);
    const kept = new Map();
    if (!conversation.entries.length) this.#calls.clear();
    const focused = document.activeElement;
    const isOurs = this.#root.contains(focused);
    const elements = conversation.entries.map((entry) => {
      const node = this.#nodes.get(entry) ?? new EntryNode(entry, (call) => this.#call(call), (change) => this.#keepingEnd(change));
      kept.set(entry, node);
      node.update(pending);
      return node.element;
    });
    this.#nodes = kept;
    arrange(this.#root, elements);
    if (isOurs || focused === document.body) this.#refocus(isOurs ? focused : this.#unfocused);
    else this.#unfocused = null;
    this.#root.setAttribute("aria-busy", String(conversation.running));
    if (atEnd) this.#toEnd();
  }

  #isAtEnd() {
    return this.#root.scrollHeight - this.#root.scrollTop - this.#root.clientHeight < 60;
  }

  // Make a change after which the end is in view if it was before.
  #keepingEnd(change) {
    const atEnd = this.#isAtEnd();
    change();
    if (atEnd) this.#toEnd();
  }

  #toEnd() {
    this.#root.scrollTop = this.#root.scrollHeight;
  }

  // Give the focus back to an element that was moved, or that is shown again.
  #refocus(element) {
    if (element !== document.activeElement) element?.focus({ preventScroll: true });
    this.#unfocused = element === document.activeElement && element.checkVisibility() ? null : element;
  }

  #call(call) {
    const node = this.#calls.get(call.id) ?? new CallNode(this.#asks);
    this.#calls.set(call.id, node);
    return node;
  }
}

const NAMES = { user: "You", assistant: "Agent", system: "System", note: "Note" };

class EntryNode {
  #revision = 0;
  #thinking = null;
  #text = null;

  // `nodeOf(call)` returns what shows a call; `keepingEnd(change)` makes a change outside `update`.
  constructor(entry, nodeOf, keepingEnd) {
    this.entry = entry;
    this.nodeOf = nodeOf;
    this.keepingEnd = keepingEnd;
    this.element = make("article", { class: `entry ${entry.kind}${entry.isError ? " error" : ""}`, "aria-label": NAMES[entry.kind] });
    if (entry.kind !== "note") this.element.append(make("div", { class: "who" }, NAMES[entry.kind]));
    this.content = make("div", { class: "content" });
    this.element.append(this.content);
  }

  update(pending) {
    const { entry } = this;
    if (entry.kind === "assistant") return this.#assistant(pending);
    if (this.#revision === entry.revision) return;
    this.#revision = entry.revision;
    if (entry.kind === "note") replace(this.content, entry.text);
    else replace(this.content, contentNodes(entry.content));
  }

  #assistant(pending) {
    const { entry } = this;
    if (this.#revision !== entry.revision) {
      this.#revision = entry.revision;
      if (entry.thinking) this.#showThinking(entry.thinking);
      if (entry.text) this.#showText(entry.text);
    }
    for (const call of entry.calls) {
      const node = this.nodeOf(call);
      node.update(call, pending.has(call));
      if (node.element.parentElement !== this.content) this.content.append(node.element);
    }
  }

  #showThinking(text) {
    if (this.#thinking === null) {
      this.#thinking = make("div", { class: "markdown" });
      this.content.prepend(make("details", { class: "thinking" }, make("summary", {}, "Thinking"), this.#thinking));
    }
    this.#thinking.textContent = text;
  }

  #showText(text) {
    if (this.#text === null) {
      this.#text = new GrowingText(make("div", { class: "markdown", dir: "auto" }), this.keepingEnd);
      this.content.insertBefore(this.#text.element, this.content.querySelector(".call"));
    }
    this.#text.show(text);
  }
}

class CallNode {
  #shown = "";
  #call = null;
  #form = undefined;

  constructor(asks) {
    this.asks = asks;
    this.name = make("strong", { dir: "auto" });
    this.input = make("pre", { tabindex: "0" });
    this.state = make("span", { class: "badge" });
    this.result = make("div");
    this.controls = make("div");
    this.element = make(
      "section",
      { class: "call" },
      make("div", { class: "row" }, this.name, this.state),
      make("details", { open: true }, make("summary", {}, "Input"), this.input),
      this.result,
      this.controls,
    );
  }

  // `call` is another object after its entry was rebuilt.
  update(call, waits) {
    const now = `${call.revision} ${waits}`;
    if (call === this.#call && now === this.#shown) return;
    if (call !== this.#call) {
      this.name.textContent = call.name;
      this.input.textContent = pretty(call.input);
      this.element.setAttribute("aria-label", `Tool call ${call.name}`);
    }
    this.#call = call;
    this.#shown = now;
    this.state.textContent = stateOf(call, waits);
    this.state.className = `badge ${waits && !call.decision ? "waits" : ""}`;
    this.element.classList.toggle("waits", waits);
    if (call.result === null) replace(this.result);
    else replace(this.result, make("details", { open: true }, make("summary", {}, "Result"), resultNodes(call.result)));
    this.#control(waits);
  }

  // The same form each time that the call waits: the person may have typed into it before another client's turn, or before an answer
  // that the server did not take.
  #control(waits) {
    if (waits && !this.#call.decision) {
      if (this.#form === undefined) this.#form = this.asks(this.#call);
      if (this.controls.firstChild !== this.#form) replace(this.controls, this.#form);
    } else if (this.#call.result !== null || this.#call.decision) {
      replace(this.controls);
    }
    this.controls.hidden = !waits;
  }
}

function stateOf(call, waits) {
  const decided = call.decision?.shown;
  if (call.result === null) {
    if (waits) return decided ? `${decided}, not sent yet` : "waits for you";
    return decided ?? "running";
  }
  if (typeof call.result === "string" && call.result.startsWith("Tool call denied")) return "denied";
  if (typeof call.result === "string" && call.result.startsWith("Tool execution failed")) return decided ? `${decided}, failed` : "failed";
  return decided ?? "done";
}

function resultNodes(content) {
  if (typeof content === "string") return make("pre", { tabindex: "0", dir: "auto" }, content);
  return content.map((block) => (block.type === "image" ? picture(block.url) : make("pre", { tabindex: "0", dir: "auto" }, block.text)));
}

function contentNodes(content) {
  if (typeof content === "string") return make("div", { class: "markdown", dir: "auto" }, markdown(content));
  return content.map((block) =>
    block.type === "image" ? picture(block.url) : make("div", { class: "markdown", dir: "auto" }, markdown(block.text)),
  );
}
