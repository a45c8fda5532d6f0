// AAP 3 and the management API: the requests that the playground makes, and server-sent events.

const BASE = "/aap/v3";

export class Aap {
  constructor(access) {
    this.access = access;
  }

  async #json(method, path, options) {
    return (await this.access.send(method, BASE + path, options)).json();
  }

  async agents() {
    return (await this.#json("GET", "/meta")).agents;
  }

  async create(body) {
    return (await this.#json("POST", "/sessions", { body, headers: once() })).sessionId;
  }

  session(id) {
    return this.#json("GET", `/sessions/${encodeURIComponent(id)}`);
  }

  // The session's address over AHP, which the client that created it may have chosen.
  async address(id) {
    return (await (await this.access.send("GET", `/api/sessions/${encodeURIComponent(id)}`)).json()).uri;
  }

  sessions(after) {
    return this.#json("GET", after ? `/sessions?after=${encodeURIComponent(after)}` : "/sessions");
  }

  async history(id, kind) {
    return (await this.#json("GET", `/sessions/${encodeURIComponent(id)}/history?type=${kind}`)).history[kind];
  }

  // Start a turn, or answer its calls; returns the response, which is a stream or JSON by `body.stream`.
  turn(id, body, signal) {
    return this.access.send("POST", `${BASE}/sessions/${encodeURIComponent(id)}/turns`, { body, headers: once(), signal });
  }

  // Follow the turn that runs, and later ones: from a position, or from the start of the turn.
  follow(id, mode, after, signal) {
    const query = `stream=${mode}&follow=true${after ? `&after=${encodeURIComponent(after)}` : ""}`;
    return this.access.send("GET", `${BASE}/sessions/${encodeURIComponent(id)}/events/stream?${query}`, { signal });
  }

  cancel(id) {
    return this.#json("POST", `/sessions/${encodeURIComponent(id)}/cancel`, { body: {} });
  }
}

// A request that is sent again by the browser or a proxy runs once.
function once() {
  const random = crypto.getRandomValues(new Uint8Array(16));
  return { "Idempotency-Key": Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("") };
}

// The events of a stream, as lists of those that arrived together: {id, event, data} or {comment}.
export async function* batches(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) {
        const last = parsed(rest);
        if (last.length) yield last;
        return;
      }
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      const found = blocks.flatMap(parsed);
      if (found.length) yield found;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parsed(block) {
  const found = { id: null, event: "message", data: null };
  const comments = [];
  for (const line of block.split("\n")) {
    if (line.startsWith(":")) comments.push({ comment: line.slice(1).trim() });
    else if (line.startsWith("id: ")) found.id = line.slice(4);
    else if (line.startsWith("event: ")) found.event = line.slice(7);
    else if (line.startsWith("data: ")) found.data = JSON.parse(line.slice(6));
  }
  return found.data === null ? comments : [...comments, found];
}
