// One session: starting and answering turns, following what happens in it, stopping.

import { batches } from "./aap.js";
import { Refused, SignedOut, Unreachable } from "./access.js";

const LONGEST_PAUSE = 15_000;

export class Session {
  #watching = null;
  // Raised when this page begins something else in the session: what was asked for before is out of date then.
  #era = 0;
  #aap;
  #access;

  // `changed(what)` is called after each change; `what` is a text for the status line, or nothing. `recovered()` is called
  // when an interrupted connection is back.
  constructor(aap, access, conversation, { changed, failed, recovered }) {
    this.#aap = aap;
    this.#access = access;
    this.conversation = conversation;
    this.changed = changed;
    this.failed = failed;
    this.recovered = recovered;
    this.id = null;
    this.agent = null;
    this.position = null;
    // Whether this page waits for the answer to a request of its own.
    this.busy = false;
  }

  // The mode in which others' turns are followed; null if the agent streams nothing.
  get mode() {
    const modes = this.agent?.capabilities?.stream ?? {};
    return modes.delta ? "delta" : modes.message ? "message" : null;
  }

  get historyKind() {
    const kinds = this.agent?.capabilities?.history ?? {};
    return kinds.full ? "full" : kinds.compacted ? "compacted" : null;
  }

  begin(id, agent) {
    this.leave();
    this.id = id;
    this.agent = agent;
  }

  leave() {
    this.#unwatch();
    this.id = null;
    this.position = null;
    this.conversation.load([]);
    this.conversation.running = false;
    this.conversation.stopReason = null;
  }

  // Show an existing session, and go on with what runs in it.
  async open(id, agent) {
    this.begin(id, agent);
    if (this.mode === null) await this.#reload();
    else this.#watch();
  }

  async #reload() {
    if (this.historyKind === null) return;
    const era = this.#era;
    const messages = await this.#aap.history(this.id, this.historyKind);
    if (era !== this.#era) return;
    this.conversation.load(messages);
    this.changed();
  }

  // Send a turn. Throws Refused if the server took nothing; everything later is shown in the conversation.
  async send(body) {
    this.#unwatch();
    this.busy = true;
    this.conversation.running = true;
    this.conversation.stopReason = null;
    this.changed("Sent. Waiting for the agent.");
    try {
      const response = await this.#aap.turn(this.id, body);
      if (body.stream === "none") this.conversation.answer(await response.json());
      else await this.#consume(response, null);
      // What this form does not tell: where the session stands now.
      if (body.stream === "none") this.position = null;
    } catch (error) {
      if (error instanceof Refused || error instanceof SignedOut) {
        this.conversation.running = false;
        throw error;
      }
      // The connection is gone, the turn is not. Following the session shows what comes, or that it never began.
      if (body.stream === "none" || error instanceof Unreachable) {
        this.position = null;
        this.conversation.running = false;
      }
    } finally {
      this.busy = false;
      this.changed();
      this.#watch();
    }
  }

  async stop() {
    const { cancelled, providerClosed } = await this.#aap.cancel(this.id);
    if (!cancelled) return "Nothing was running.";
    if (!this.conversation.running) {
      this.conversation.stopReason = null;
      await this.#reload();
    }
    return providerClosed ? "Stopped. The call to the model is closed." : "Stopped. The call to the model is being closed.";
  }

  #unwatch() {
    this.#era += 1;
    this.#watching?.abort();
    this.#watching = null;
  }

  // Follow the session until this page does something in it. Turns of other clients appear too.
  async #watch() {
    this.#unwatch();
    const stopping = new AbortController();
    this.#watching = stopping;
    const { signal } = stopping;
    if (this.mode === null || this.id === null) return;
    let isInterrupted = false;
    for (let pause = 500; !signal.aborted; pause = Math.min(pause * 2, LONGEST_PAUSE)) {
      try {
        const response = await this.#aap.follow(this.id, this.mode, this.position, signal);
        if (this.position === null) await this.#reload();
        pause = 500;
        if (isInterrupted) this.recovered();
        isInterrupted = false;
        await this.#consume(response, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Refused && error.status === 410) {
          // What came after the position is not kept as events any more: the history has it.
          this.position = null;
        } else if (error instanceof SignedOut || (error instanceof Refused && error.status < 500 && error.status !== 429)) {
          // What was is shown all the same.
          if (this.position === null) await this.#reload().catch(() => {});
          return void this.failed(error);
        } else {
          isInterrupted = true;
          this.changed("The connection is interrupted; trying again.");
        }
      }
      await new Promise((resume) => setTimeout(resume, pause));
    }
  }

  // Apply a stream's events. Without `signal` it is the stream of this page's own turn.
  async #consume(response, signal) {
    for await (const events of batches(response)) {
      if (signal?.aborted) return;
      for (const event of events) {
        if (event.comment?.includes("no longer valid")) this.#access.renew();
        if (signal && event.event === "turn_start") {
          // A turn that this page has not begun: its message is in the history.
          await this.#reload();
          if (signal.aborted) return;
        }
        this.conversation.apply(event);
        if (event.id) this.position = event.id;
        if (signal && event.event === "turn_stop") await this.#reload();
      }
      this.changed();
    }
  }
}
