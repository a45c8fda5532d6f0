// Requests with a short-lived token, which the server mints for the signed-in member. The token stays in this module.

const MARGIN_SECONDS = 45;

export class Refused extends Error {
  constructor(status, problem, retryAfter) {
    super(problem.detail || problem.title || `The server answered ${status}.`);
    this.status = status;
    this.problem = problem;
    this.retryAfter = retryAfter;
  }
}

export class SignedOut extends Error {}

export class Unreachable extends Error {
  constructor() {
    super("The server does not answer. Check the connection; what runs on the server continues.");
  }
}

export class Access {
  #minting;
  #csrf;
  #token = null;
  #until = 0;
  #pending = null;

  constructor(minting, csrf) {
    this.#minting = minting;
    this.#csrf = csrf;
    this.scopes = [];
    // Called with each request: {method, path, body, status}. Never with the token.
    this.onrequest = () => {};
  }

  async #current() {
    if (this.#token !== null && performance.now() < this.#until) return this.#token;
    // Requests that begin together wait for one token.
    this.#pending ??= this.#mint().finally(() => {
      this.#pending = null;
    });
    return this.#pending;
  }

  async #mint() {
    const answer = await reached(fetch(this.#minting, { method: "POST", headers: { "X-CSRFToken": this.#csrf }, redirect: "manual" }));
    // Also if the person has signed in again elsewhere: then the page's CSRF token is an old one, and the answer is a page.
    const isPage = !answer.headers.get("Content-Type")?.includes("json");
    if (answer.type === "opaqueredirect" || (answer.status === 403 && isPage)) throw new SignedOut();
    if (!answer.ok) throw new Refused(answer.status, await problemOf(answer), null);
    const minted = await answer.json();
    this.#token = minted.token;
    this.#until = performance.now() + Math.max(5, minted.seconds - MARGIN_SECONDS) * 1000;
    this.scopes = minted.scopes;
    return this.#token;
  }

  // The subprotocols of a WebSocket to this server.
  async subprotocols() {
    return ["ahp", `bearer.${await this.#current()}`];
  }

  // Forget the token: the server has refused it, or has ended a connection with it.
  renew() {
    this.#token = null;
  }

  // Send a request; returns the response if it succeeded, else throws.
  async send(method, path, { body, headers = {}, signal } = {}) {
    for (let tries = 1; ; tries += 1) {
      const token = await this.#current();
      const sent = { ...headers, Authorization: `Bearer ${token}` };
      if (body !== undefined) sent["Content-Type"] = "application/json";
      const answer = await reached(
        fetch(path, { method, headers: sent, body: body === undefined ? undefined : JSON.stringify(body), signal, credentials: "omit", cache: "no-store" }),
      );
      if (answer.status === 401 && tries === 1) {
        this.renew();
        continue;
      }
      this.onrequest({ method, path, body, status: answer.status });
      if (answer.ok) return answer;
      throw new Refused(answer.status, await problemOf(answer), answer.headers.get("Retry-After"));
    }
  }
}

async function reached(response) {
  try {
    return await response;
  } catch (error) {
    throw error.name === "AbortError" ? error : new Unreachable();
  }
}

async function problemOf(answer) {
  try {
    return await answer.json();
  } catch {
    return { detail: `The server answered ${answer.status}.` };
  }
}
