// A small client of AHP 0.1: one connection that mirrors one session, and dispatches actions to it.

import { SignedOut } from "./access.js";
import { reduceSession } from "./ahp_reducers.js";

const LONGEST_PAUSE = 15_000;
const FORBIDDEN = 1008;

export class AhpMirror {
  #access;
  #socket = null;
  #requests = new Map();
  #numbers = 0;
  #seen = null;
  #clientId = `playground-${Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  #sequence = 0;
  #pause = 500;

  // `changed()` after each change; `framed(direction, message)` for each frame.
  constructor(access, { changed, framed }) {
    this.#access = access;
    this.changed = changed;
    this.framed = framed;
    this.uri = null;
    this.state = null;
    this.unfolded = new Set();
    this.status = "Not connected.";
  }

  // Mirror this session until close() is called.
  open(uri) {
    this.close();
    this.uri = uri;
    this.#pause = 500;
    this.#connect();
  }

  close() {
    const socket = this.#socket;
    this.#socket = this.uri = this.state = this.#seen = null;
    this.#requests.clear();
    this.unfolded.clear();
    socket?.close();
  }

  async #connect() {
    const uri = this.uri;
    this.#say("Connecting.");
    let protocols;
    try {
      protocols = await this.#access.subprotocols();
    } catch (error) {
      if (uri !== this.uri) return;
      if (error instanceof SignedOut) return this.#say("You are signed out.");
      return this.#again(error.message);
    }
    if (uri === null || uri !== this.uri) return;
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ahp`, protocols);
    this.#socket = socket;
    socket.addEventListener("open", () => this.#shakeHands(socket));
    socket.addEventListener("message", (event) => socket === this.#socket && this.#heard(JSON.parse(event.data)));
    socket.addEventListener("close", (event) => {
      if (socket !== this.#socket) return;
      this.#requests.clear();
      // The token has ended, or the upgrade was refused: browsers do not say why.
      if (event.code === FORBIDDEN || event.code === 1006) this.#access.renew();
      this.#again("The connection was closed; connecting again.");
    });
  }

  #again(why) {
    this.#socket = null;
    this.#say(why);
    const uri = this.uri;
    setTimeout(() => uri !== null && uri === this.uri && this.#socket === null && this.#connect(), this.#pause);
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE);
  }

  async #shakeHands(socket) {
    try {
      if (this.#seen === null) {
        const { snapshots, serverSeq } = await this.#request("initialize", { protocolVersions: ["0.1.0"], clientId: this.#clientId, initialSubscriptions: [this.uri] });
        this.#seen = serverSeq;
        this.#take(snapshots);
      } else {
        const back = await this.#request("reconnect", { clientId: this.#clientId, lastSeenServerSeq: this.#seen, subscriptions: [this.uri] });
        if (back.type === "snapshot") this.#take(back.snapshots);
        else for (const envelope of back.actions) this.#apply(envelope);
      }
      if (socket !== this.#socket) return;
      this.#pause = 500;
      this.#say(this.state === null ? "AHP does not show this session." : "Live.");
    } catch (error) {
      this.#say(`The host refused: ${error.message}`);
    }
  }

  #take(snapshots) {
    for (const { resource, state, fromSeq } of snapshots) {
      if (resource !== this.uri) continue;
      this.state = state;
      this.#seen = Math.max(this.#seen ?? 0, fromSeq);
    }
    this.changed();
  }

  #send(message) {
    this.framed("out", message);
    this.#socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
  }

  #request(method, params) {
    const id = (this.#numbers += 1);
    return new Promise((done, failed) => {
      this.#requests.set(id, { done, failed });
      this.#send({ id, method, params });
    });
  }

  #heard(message) {
    this.framed("in", message);
    if (message.method === "action") return this.#apply(message.params);
    if (message.method !== undefined) {
      // The host may ask for a file of the person's machine: this page has none to give.
      if (message.id !== undefined) this.#send({ id: message.id, error: { code: -32601, message: "this client answers no requests" } });
      return;
    }
    const request = this.#requests.get(message.id);
    this.#requests.delete(message.id);
    if (message.error) request?.failed(new Error(message.error.message));
    else request?.done(message.result);
  }

  #apply({ action, serverSeq, rejectionReason }) {
    this.#seen = Math.max(this.#seen ?? 0, serverSeq);
    if (rejectionReason !== undefined) return this.#say(`The host has refused ${action?.type}: ${rejectionReason}`);
    if (action.session !== this.uri || this.state === null) return;
    if (!action.type.startsWith("session/")) this.unfolded.add(action.type);
    else this.state = reduceSession(this.state, action, Date.now());
    this.changed();
  }

  dispatch(action) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return this.#say("Not connected: nothing was sent.");
    this.#send({ method: "dispatchAction", params: { clientSeq: (this.#sequence += 1), action: { ...action, session: this.uri } } });
  }

  #say(text) {
    this.status = text;
    this.changed();
  }
}
