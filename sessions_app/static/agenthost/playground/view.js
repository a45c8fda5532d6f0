// Shows a conversation: one element for each entry, rebuilt only when the entry has changed.

import { arrange, make, picture, pretty, replace } from "./dom.js";
import { markdown } from "./markdown.js";

export class ConversationView {
  #root;
  #nodes = new Map();
  #asks;

  // `asks(call)` returns the controls for a call that waits, or null.
  constructor(root, asks) {
    this.#root = root;
    this.#asks = asks;
  }

  show(conversation) {
    const atEnd = this.#root.scrollHeight - this.#root.scrollTop - this.#root.clientHeight < 60;
    const pending = new Set(conversation.pending);
    const kept = new Map();
    const elements = conversation.entries.map((entry) => {
      const node = this.#nodes.get(entry) ?? new EntryNode(entry, this.#asks);
      kept.set(entry, node);
      node.update(pending);
      return node.element;
    });
    this.#nodes = kept;
    arrange(this.#root, elements);
    this.#root.setAttribute("aria-busy", String(conversation.running));
    if (atEnd) this.#root.scrollTop = this.#root.scrollHeight;
  }
}

const NAMES = { user: "You", assistant: "Agent", system: "System", note: "Note" };

class EntryNode {
  #revision = 0;
  #calls = new Map();
  #thinking = null;
  #text = null;
  #next = 0;

  constructor(entry, asks) {
    this.entry = entry;
    this.asks = asks;
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
      let node = this.#calls.get(call.id);
      if (node === undefined) {
        node = new CallNode(call, this.asks);
        this.#calls.set(call.id, node);
        this.content.append(node.element);
      }
      node.update(pending.has(call));
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
      this.#text = make("div", { class: "markdown", dir: "auto" });
      const firstCall = this.content.querySelector(".call");
      this.content.insertBefore(this.#text, firstCall);
    }
    const element = this.#text;
    const began = performance.now();
    if (began < this.#next) {
      // A long text takes long to lay out: not at each delta.
      clearTimeout(this.later);
      this.later = setTimeout(() => replace(element, markdown(this.entry.text)), this.#next - began);
      return;
    }
    replace(element, markdown(text));
    const took = performance.now() - began;
    this.#next = began + took * 5;
  }
}

class CallNode {
  #shown = "";
  #asked = undefined;

  constructor(call, asks) {
    this.call = call;
    this.asks = asks;
    this.state = make("span", { class: "badge" });
    this.result = make("div");
    this.controls = make("div");
    this.element = make(
      "section",
      { class: "call", "aria-label": `Tool call ${call.name}` },
      make("div", { class: "row" }, make("strong", { dir: "auto" }, call.name), this.state),
      make("details", { open: true }, make("summary", {}, "Input"), make("pre", { tabindex: "0" }, pretty(call.input))),
      this.result,
      this.controls,
    );
  }

  update(waits) {
    const { call } = this;
    const now = `${call.revision} ${waits}`;
    if (now === this.#shown) return;
    this.#shown = now;
    this.state.textContent = stateOf(call, waits);
    this.state.className = `badge ${waits && !call.decision ? "waits" : ""}`;
    this.element.classList.toggle("waits", waits);
    if (call.result !== null) {
      replace(this.result, make("details", { open: true }, make("summary", {}, "Result"), resultNodes(call.result)));
    }
    this.#control(waits);
  }

  // The controls stay while another client has a turn: the person may have typed into them.
  #control(waits) {
    const { call } = this;
    if (waits && this.#asked !== call.decision) {
      this.#asked = call.decision;
      replace(this.controls, this.asks(call));
    }
    if (call.result !== null) replace(this.controls);
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
