/**
 * A chat with an agent over AAP 3, without dependencies. Each line of standard input is a message.
 *
 *     AGENTHOST_URL=https://agents.example AGENTHOST_KEY=ah_... node chat.mts
 *
 * The answer goes to standard output, everything else to standard error. docs/clients.md lists the rules that it follows.
 */
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const API = `${(process.env.AGENTHOST_URL ?? "http://127.0.0.1:8000").replace(/\/+$/, "")}/aap/v3`;
const KEY = process.env.AGENTHOST_KEY ?? "";
const AGENT = process.env.AGENTHOST_AGENT ?? "demo";
/** A connection without a byte for this long is lost: the server sends a comment every 15 seconds. */
const QUIET_MS = 1000 * Number(process.env.AGENTHOST_QUIET_SECONDS ?? 60);
const RETRY_MS = 60_000;
const LONGEST_WAIT_SECONDS = 60;

type Json = Record<string, unknown>;
type ToolCall = { toolCallId: string; name: string; input: Json };
type Agent = { name: string; tools?: { name: string }[]; capabilities?: { stream?: Json; application?: Json } };
type Problem = { title?: string; detail?: string; instance?: string; errors?: { pointer: string; detail: string }[] };
type ServerSentEvent = { id: string; name: string; data: string };

// --- your application: its tools, and the decision about the server's ---

const TOOLS = [
  {
    name: "look_up_order",
    description: "Finds an order by its number.",
    parameters: { type: "object", properties: { number: { type: "string" } }, required: ["number"] },
  },
];
const FUNCTIONS = new Map([["look_up_order", lookUpOrder]]);

function lookUpOrder(input: Json): string {
  if (typeof input["number"] !== "string") throw new Error("number: a string is needed");
  return `Order ${input["number"]}: shipped yesterday`;
}

/** The message that answers a call: the result of a tool of ours, or the permission for a tool of the server. */
async function answer(call: ToolCall): Promise<Json> {
  const { toolCallId } = call;
  const run = FUNCTIONS.get(call.name);
  if (run === undefined) {
    const granted = (await ask(`Allow ${call.name} ${JSON.stringify(call.input)}? [y/N] `)) === "y";
    return { role: "tool_permission", toolCallId, granted, ...(granted ? {} : { reason: "the user refused" }) };
  }
  try {
    return { role: "tool", toolCallId, content: run(call.input) };
  } catch (error) {
    // The model sees that its call failed, and the conversation continues.
    return { role: "tool", toolCallId, content: `Tool execution failed: ${reason(error)}` };
  }
}

// --- the protocol ---

class Refused extends Error {
  constructor(status: number, problem: Problem) {
    const faults = (problem.errors ?? []).map((each) => `\n  ${each.pointer}: ${each.detail}`).join("");
    const request = problem.instance === undefined ? "" : ` (${problem.instance})`;
    super(`${status} ${problem.title ?? ""}: ${problem.detail ?? "no details"}${request}${faults}`);
  }
}

/** Pauses between attempts. Gives up when nothing has succeeded for RETRY_MS. */
class Attempts {
  private until = Date.now() + RETRY_MS;
  private milliseconds = 250;

  reset(): void {
    this.until = Date.now() + RETRY_MS;
    this.milliseconds = 250;
  }

  async pause(reason: string): Promise<void> {
    if (Date.now() + this.milliseconds > this.until) throw new Error(reason);
    note(`${reason}; trying again`);
    // Random, so that many clients do not come back at the same moment.
    await sleep(this.milliseconds * (0.5 + Math.random() / 2));
    this.milliseconds = Math.min(2 * this.milliseconds, 5000);
  }
}

/** Sends a request until it is answered. All may be repeated: those that change something have an Idempotency-Key. */
async function call(method: string, path: string, body?: Json, headers: Record<string, string> = {}): Promise<Response> {
  const attempts = new Attempts();
  for (;;) {
    const abort = new AbortController();
    const timer = setTimeout(() => abort.abort(), QUIET_MS);
    const response = await fetch(API + path, {
      method,
      headers: { Authorization: `Bearer ${KEY}`, ...(body && { "Content-Type": "application/json" }), ...headers },
      body: body && JSON.stringify(body),
      signal: abort.signal,
    }).catch((error: unknown) => error as Error);
    clearTimeout(timer);
    if (response instanceof Error) {
      await attempts.pause(`no answer from ${API} (${String(response.cause ?? response)})`);
      continue;
    }
    if (response.ok) return response;
    // A proxy may answer with something that is not JSON.
    const problem = (await response.json().catch(() => ({}))) as Problem;
    const wait = Number(response.headers.get("Retry-After") ?? NaN);
    if ((response.status === 429 || response.status === 503) && wait <= LONGEST_WAIT_SECONDS) {
      note(`${problem.detail ?? ""} Waiting ${wait} s.`);
      await sleep(1000 * Math.max(wait, 0.5));
    } else if (response.status === 502 || response.status === 504) {
      await attempts.pause(`the proxy answered ${response.status}`);
    } else {
      throw new Refused(response.status, problem);
    }
  }
}

/** The server-sent events of a response. Ends without an error when the connection breaks. */
async function* events(response: Response): AsyncGenerator<ServerSentEvent> {
  const reader = response.body!.getReader();
  const decoder = new TextDecoder(); // keeps the first bytes of a character until the rest arrives
  const timer = setTimeout(() => void reader.cancel().catch(() => {}), QUIET_MS);
  let [rest, id, name] = ["", "", ""];
  let data: string[] = [];
  try {
    for (;;) {
      const chunk = await reader.read().catch(() => undefined);
      if (chunk === undefined || chunk.done) return; // an event without its empty line is incomplete, and comes again
      timer.refresh();
      rest += decoder.decode(chunk.value, { stream: true });
      const lines = rest.split(/\r\n|\n|\r(?!$)/); // a CR at the end may be the half of a CRLF
      rest = lines.pop()!;
      for (const line of lines) {
        const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line)!; // a comment is a line with an empty field name
        if (line === "") {
          if (data.length > 0) yield { id, name, data: data.join("\n") };
          [name, data] = ["", []];
        } else if (field === "data") data.push(value!);
        else if (field === "event") name = value!;
        else if (field === "id") id = value!;
      }
    }
  } finally {
    clearTimeout(timer);
    await reader.cancel().catch(() => {});
  }
}

/** Runs a turn. Returns its stop reason and the calls that wait for us. */
async function turn(session: string, mode: string, messages: Json[]): Promise<[string, ToolCall[]]> {
  const key = { "Idempotency-Key": crypto.randomUUID() }; // the same in each attempt, so the turn runs once
  const open = new Map<string, ToolCall>();
  const attempts = new Attempts();
  let position = ""; // the id of the last event that was handled
  for (;;) {
    const response =
      position === ""
        ? await call("POST", `/sessions/${session}/turns`, { messages, stream: mode }, key)
        : await call("GET", `/sessions/${session}/events/stream?stream=${mode}`, undefined, { "Last-Event-ID": position });
    if (response.status === 204) throw new Error("the turn is over, and its last events are gone: read the history");
    for await (const event of events(response)) {
      const data = JSON.parse(event.data);
      if (event.name === "text_delta") print(data.delta);
      else if (event.name === "text") print(data.text);
      else if (event.name === "tool_call") {
        open.set(data.toolCallId, data);
        note(`the agent calls ${data.name} ${JSON.stringify(data.input)}`);
      } else if (event.name === "tool_result") {
        open.delete(data.toolCallId);
        note(`result: ${typeof data.content === "string" ? data.content : JSON.stringify(data.content)}`);
      } else if (event.name === "turn_stop") {
        print("\n");
        return [data.stopReason, [...open.values()]];
      } // others: thinking, and events of newer servers
      position = event.id;
      attempts.reset();
    }
    await attempts.pause("the connection broke");
  }
}

async function main(): Promise<void> {
  const meta = (await (await call("GET", "/meta")).json()) as { agents: Agent[] };
  const agent = meta.agents.find((each) => each.name === AGENT);
  if (agent === undefined) throw new Error(`${API} has no agent ${AGENT} for this key`);
  const mode = agent.capabilities?.stream?.["delta"] ? "delta" : "message";
  const made = await call(
    "POST",
    "/sessions",
    {
      // Without "trust", the server asks before each call of one of its tools.
      agent: { name: AGENT, tools: (agent.tools ?? []).map(({ name }) => ({ name })) },
      tools: agent.capabilities?.application?.["tools"] ? TOOLS : [],
    },
    { "Idempotency-Key": crypto.randomUUID() },
  );
  const session = ((await made.json()) as { sessionId: string }).sessionId;
  note(`session ${session}`);
  let calls: ToolCall[] = [];
  for (;;) {
    let messages: Json[] = [];
    for (const each of calls) messages.push(await answer(each));
    if (messages.length === 0) {
      const line = await ask("> ");
      if (line === undefined) return;
      if (line.trim() === "") continue;
      messages = [{ role: "user", content: line }];
    }
    let stopReason: string;
    [stopReason, calls] = await turn(session, mode, messages);
    if (stopReason !== "tool_use" && stopReason !== "end_turn") note(`the turn ended with ${stopReason}`);
  }
}

// --- the terminal ---

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** The next line of standard input; undefined at its end. */
async function ask(question: string): Promise<string | undefined> {
  process.stderr.write(printable(question));
  return (await lines.next()).value;
}

function print(text: string): void {
  process.stdout.write(printable(text));
}

function note(text: string): void {
  process.stderr.write(`[${printable(text)}]\n`);
}

function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Texts of a model or a tool must not control the terminal. */
function printable(text: string): string {
  return text.replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, "\ufffd");
}

try {
  await main();
} catch (error) {
  note(reason(error));
  process.exitCode = 1;
}
process.stdin.destroy();
