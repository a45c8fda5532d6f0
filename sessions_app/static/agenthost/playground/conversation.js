// What a session's messages and events say, as entries to show. Knows no page and no network.
//
// An entry is {kind: "user" | "system" | "assistant" | "note", …, revision}. Each change raises the entry's revision. The calls of
// an assistant's entry have a revision of their own: {id, name, input, result, decision, revision}.

export class Conversation {
  constructor() {
    this.entries = [];
    this.calls = new Map();
    this.running = false;
    this.stopReason = null;
    this.detail = null;
    // The entries of the turn that is followed begin here. What is before comes from the history.
    this.liveFrom = 0;
    this.open = null;
  }

  // Show these messages. Decisions that the person made on this page are kept: the history does not have them. Entries that say what
  // they said before, or have the same calls, stay the same objects wherever they are now: the page does not rebuild them.
  load(messages) {
    const known = this.calls;
    const before = this.entries;
    this.entries = [];
    this.calls = new Map();
    this.open = null;
    for (const message of messages) this.#message(message, known);
    const same = Map.groupBy(before, said);
    this.entries = this.entries.map((entry) => this.#kept(known.get(entry.calls?.[0]?.id)?.entry ?? same.get(said(entry))?.shift(), entry));
    this.liveFrom = this.entries.length;
  }

  // The old entry, if the new one says the same or is a later state of it: there are more calls, or results of calls.
  #kept(old, entry) {
    if (old === undefined) return entry;
    const calls = new Map((entry.calls ?? []).map((call) => [call.id, call]));
    if (!(old.calls ?? []).every((call) => calls.has(call.id))) return entry;
    if (said(old) !== said(entry)) {
      Object.assign(old, { thinking: entry.thinking, text: entry.text, images: entry.images });
      old.revision += 1;
    }
    for (const call of old.calls ?? []) {
      const { result } = calls.get(call.id);
      calls.delete(call.id);
      this.calls.set(call.id, call);
      if (call.result === null && result !== null) this.result(call.id, result);
    }
    for (const call of calls.values()) {
      old.calls.push(call);
      call.entry = old;
    }
    return old;
  }

  #message(message, known) {
    if (message.role === "tool") return this.result(message.toolCallId, message.content);
    if (message.role !== "assistant") return void this.#add({ kind: message.role, content: message.content });
    const entry = this.#add({ kind: "assistant", thinking: "", text: "", images: [], calls: [] });
    const blocks = typeof message.content === "string" ? [{ type: "text", text: message.content }] : message.content;
    for (const block of blocks) {
      if (block.type === "text") entry.text += block.text;
      else if (block.type === "thinking") entry.thinking += block.thinking;
      else if (block.type === "image") entry.images.push(block.url);
      else if (block.type === "tool_use") this.#call(entry, block, known.get(block.toolCallId)?.decision);
    }
  }

  #add(entry) {
    entry.revision = 1;
    this.entries.push(entry);
    return entry;
  }

  #call(entry, { toolCallId, name, input }, decision = null) {
    const call = { id: toolCallId, name, input, result: null, decision, revision: 1, entry };
    entry.calls.push(call);
    this.calls.set(toolCallId, call);
  }

  // A result of a call: from the server, or the person's own answer to a tool of theirs. Null takes an answer back.
  result(id, content) {
    const call = this.calls.get(id);
    if (call === undefined) return;
    call.result = content;
    call.revision += 1;
    call.entry.revision += 1;
  }

  user(content) {
    this.#add({ kind: "user", content });
    this.liveFrom = this.entries.length;
    this.open = null;
  }

  note(text, isError = false) {
    this.#add({ kind: "note", text, isError });
  }

  begin() {
    this.running = true;
    this.stopReason = null;
    this.detail = null;
    this.open = null;
    this.liveFrom = this.entries.length;
  }

  // One event of a stream.
  apply({ event, data, comment }) {
    if (comment !== undefined) {
      if (comment.startsWith("error ")) this.detail = comment.slice(6);
      return;
    }
    switch (event) {
      case "turn_start":
        return this.begin();
      case "text_delta":
      case "text":
        return this.#grow("text", data.delta ?? data.text);
      case "thinking_delta":
      case "thinking":
        return this.#grow("thinking", data.delta ?? data.thinking);
      case "tool_call":
        return this.#called(data);
      case "tool_result":
        this.open = null;
        return this.result(data.toolCallId, data.content);
      case "turn_stop":
        return this.stop(data.stopReason);
    }
  }

  #grow(part, text) {
    const entry = this.#step();
    entry[part] += text;
    entry.revision += 1;
  }

  #step() {
    this.open ??= this.#add({ kind: "assistant", thinking: "", text: "", images: [], calls: [] });
    return this.open;
  }

  #called(data) {
    const known = this.calls.get(data.toolCallId);
    if (known !== undefined) {
      // A joined stream begins at the start of the turn; the history has the turn's finished steps already.
      const place = this.entries.indexOf(known.entry);
      if (place >= this.liveFrom) return;
      // -1: the step was taken away with its first call.
      if (place >= 0) {
        this.entries.splice(place, this.liveFrom - place);
        this.liveFrom = place;
      }
    }
    const entry = this.#step();
    this.#call(entry, data, known?.decision);
    entry.revision += 1;
  }

  // The JSON form of an answer to a turn.
  answer({ messages, stopReason }) {
    for (const message of messages) this.#message(message, this.calls);
    this.stop(stopReason);
  }

  stop(reason) {
    this.running = false;
    this.stopReason = reason;
    this.open = null;
    this.liveFrom = this.entries.length;
  }

  // The calls that wait for the client: those of the last assistant message without a result.
  get pending() {
    if (this.running) return [];
    const last = this.entries.findLast((entry) => entry.kind === "assistant" || entry.kind === "user");
    return last?.kind === "assistant" ? last.calls.filter((call) => call.result === null) : [];
  }

  decide(id, decision) {
    const call = this.calls.get(id);
    if (call === undefined) return;
    call.decision = decision;
    call.revision += 1;
    call.entry.revision += 1;
  }
}

function said({ kind, content, thinking, text, images, calls = [] }) {
  return JSON.stringify([kind, content, thinking, text, images, calls.map(({ id, name, input, result }) => [id, name, input, result])]);
}
