// The playground: puts the parts together.

import { Aap } from "./aap.js";
import { Access, Refused, SignedOut, Unreachable } from "./access.js";
import { AhpPane } from "./ahp_pane.js";
import { Requests } from "./code.js";
import { Conversation } from "./conversation.js";
import { make, pretty, replace } from "./dom.js";
import { Pictures } from "./pictures.js";
import { Session } from "./session.js";
import { Setup } from "./setup.js";
import { ConversationView } from "./view.js";

const at = (id) => document.getElementById(id);
const page = at("playground");
const tenant = page.dataset.tenant;
const mayWrite = page.dataset.writes === "yes";

const access = new Access(page.dataset.token, page.querySelector("[name=csrfmiddlewaretoken]").value);
const aap = new Aap(access);
const conversation = new Conversation();
const session = new Session(aap, access, conversation, { changed: render, failed, recovered });
const view = new ConversationView(at("entries"), controlsFor);
const setup = new Setup(
  { options: at("options"), tools: at("tools"), own: at("own-tools"), form: at("own-tool"), fault: at("own-tool-fault"), sample: at("own-tool-sample") },
  // Answers are the person's own words for this tab; the server gets them when the agent asks.
  {
    get: (name) => sessionStorage.getItem(`playground ${tenant} ${name}`),
    set: (name, answer) => (answer === null ? sessionStorage.removeItem(`playground ${tenant} ${name}`) : sessionStorage.setItem(`playground ${tenant} ${name}`, answer)),
  },
);
const pictures = new Pictures({ list: at("pictures"), field: at("picture-file"), composer: at("composer"), page: document, failed: problem });

const requests = new Requests(at("requests"), () => setup.secrets);
access.onrequest = (request) => requests.add(request);
const pane = new AhpPane(
  { state: at("ahp-state"), status: at("ahp-status"), frames: at("ahp-frames"), unfolded: at("ahp-unfolded"), form: at("ahp-form"), message: at("ahp-message"), send: at("ahp-send"), stop: at("ahp-stop") },
  access,
  mayWrite,
);

let agents = [];
let chosen = null;
let decisions = new Map();
let frame = null;
// Whether the problem that the page shows is that the server could not be reached.
let isOutage = false;
const addresses = new Map();
const ADDRESS_AGAIN_MS = 5000;

// --- what the page shows ---

function render(said) {
  if (said) say(said);
  frame ??= requestAnimationFrame(() => {
    frame = null;
    show();
  });
}

// The session's address over AHP; null until it is known, which changes the page again.
function addressOf(id) {
  if (!addresses.has(id)) {
    addresses.set(id, null);
    aap.address(id).then(
      (uri) => {
        addresses.set(id, uri);
        render();
      },
      () => setTimeout(() => addresses.delete(id) && render(), ADDRESS_AGAIN_MS),
    );
  }
  return addresses.get(id);
}

function say(text) {
  at("status").textContent = text;
}

function show() {
  answerCanned();
  pane.show(session.id === null || at("watch").hidden ? null : addressOf(session.id));
  view.show(conversation);
  at("empty").hidden = conversation.entries.length > 0 || session.id !== null;
  const pending = conversation.pending;
  const busy = conversation.running || session.busy;
  at("send").disabled = !mayWrite || busy || chosen === null;
  at("stop").disabled = !mayWrite || session.id === null || !(busy || pending.length);
  at("message").disabled = !mayWrite;
  const decided = pending.filter((call) => decisions.has(call.id)).length;
  at("partial").hidden = busy || decided === 0 || decided === pending.length;
  if (busy) return;
  const reason = conversation.stopReason;
  if (pending.length) say(pending.length === 1 ? "The agent waits for your answer to a tool call." : `The agent waits for your answers to ${pending.length} tool calls.`);
  else if (reason) say(ENDS[reason] ?? `The turn has ended: ${reason}.`);
  if (reason === "error") say(`The turn has failed${conversation.detail ? `: ${conversation.detail.replaceAll("_", " ")}` : ""}. You can send another message.`);
}

const ENDS = {
  end_turn: "The agent has finished.",
  tool_use: "The agent waits.",
  max_tokens: "The answer was cut: a limit of tokens is reached.",
  refusal: "The model has refused to answer.",
};

function problem(text) {
  isOutage = false;
  replace(at("problem"), text && make("p", { class: "error", role: "alert" }, text));
}

// Show an error, with what the person can do about it.
function failed(error) {
  say("");
  if (error instanceof SignedOut) {
    const next = encodeURIComponent(location.pathname + location.hash);
    return replace(at("problem"), make("p", { class: "error", role: "alert" }, "You are signed out. ", make("a", { href: `/accounts/login/?next=${next}` }, "Sign in again"), " to go on; what runs continues."));
  }
  if (error instanceof Refused) {
    if (error.status === 429) return problem(`A limit is reached: ${error.message}${error.retryAfter ? ` Try again in ${error.retryAfter} s.` : ""}`);
    if (error.status === 404) return problem("This session does not exist any more. Begin a new one.");
    if (error.status === 409) return problem("A turn is running in this session already. Wait for its end, or stop it.");
    if (error.status === 403 && !window.isSecureContext) return problem("The server refuses the token: browsers report where a request comes from only over TLS or on localhost. Open this page with https.");
    // The detail says the first of the errors already.
    const more = (error.problem.errors ?? []).filter((each) => !error.message.includes(each.detail));
    problem([error.message, ...more.map((each) => `${each.pointer}: ${each.detail}`)].join(" "));
    isOutage = error.status >= 500;
    return;
  }
  problem(error.message);
  isOutage = error instanceof Unreachable;
}

// The connection is back: a problem of the outage is none any more.
function recovered() {
  if (isOutage) problem(null);
  render("Connected again.");
}

// --- agents and sessions ---

async function start() {
  try {
    agents = await aap.agents();
  } catch (error) {
    at("empty").textContent = "";
    return failed(error);
  }
  replace(at("agent"), agents.map((agent) => make("option", { value: agent.name }, agent.title ? `${agent.title} (${agent.name})` : agent.name)));
  if (!agents.length) {
    at("empty").textContent = "This tenant has no agents. The operator of the server describes agents in its agents file.";
    return;
  }
  await Promise.all([fromAddress(), listSessions()]);
}

function choose(agent, shown = null) {
  chosen = agent;
  at("agent").value = agent.name;
  replace(at("about"), agent.description ?? "");
  const modes = Object.keys(agent.capabilities?.stream ?? {});
  for (const option of at("mode").options) option.disabled = !modes.includes(option.value);
  if (at("mode").selectedOptions[0]?.disabled ?? true) at("mode").value = modes[0] ?? "none";
  const images = agent.capabilities?.image ?? {};
  pictures.allow({ data: images.data !== undefined, http: images.http !== undefined });
  at("picture-tools").hidden = images.data === undefined && images.http === undefined;
  setup.load(agent, shown);
}

function newSession() {
  session.leave();
  decisions = new Map();
  problem(null);
  history.replaceState(null, "", location.pathname);
  at("session").value = "";
  choose(agents.find((agent) => agent.name === at("agent").value) ?? agents[0]);
  at("empty").textContent = mayWrite ? "Choose an agent, then write a message." : "Choose a session to read.";
  say("");
  render();
}

// The address names the session, so that reloading the page goes on with it.
async function fromAddress() {
  const id = location.hash.slice(1);
  if (!/^[A-Za-z0-9_-]{1,128}$/.test(id)) return newSession();
  if (id === session.id) return;
  problem(null);
  say("Loading the session.");
  decisions = new Map();
  try {
    const shown = await aap.session(id);
    const agent = agents.find((each) => each.name === shown.agent.name);
    if (agent === undefined) {
      newSession();
      return problem(`The agent of this session, ${shown.agent.name}, is not offered any more.`);
    }
    choose(agent, shown);
    await session.open(id, agent);
    at("session").value = id;
    say("");
    render();
  } catch (error) {
    newSession();
    failed(error);
  }
}

async function listSessions(after) {
  try {
    const { sessions, next } = await aap.sessions(after);
    const options = sessions.map((each) => make("option", { value: each.sessionId }, `${each.agent.name} · ${each.sessionId.slice(-8)}`));
    if (!after) replace(at("session"), make("option", { value: "" }, "New session"), options);
    else at("session").append(...options);
    at("older").hidden = !next;
    at("older").onclick = () => listSessions(next);
    if (session.id !== null) known(session.id, session.agent.name);
    at("session").value = session.id ?? "";
  } catch (error) {
    failed(error);
  }
}

function known(id, agent) {
  if (![...at("session").options].some((option) => option.value === id)) {
    at("session").options[0].after(make("option", { value: id }, `${agent} · ${id.slice(-8)}`));
  }
  at("session").value = id;
}

// --- turns ---

async function send(messages) {
  problem(null);
  const body = { messages, stream: at("mode").value };
  if (session.id === null) {
    const creation = setup.creation();
    const id = await aap.create(creation);
    setup.sent();
    session.begin(id, chosen);
    history.replaceState(null, "", `#${id}`);
    known(id, chosen.name);
  } else Object.assign(body, setup.overrides());
  const undo = setup.sent();
  const before = conversation.entries.length;
  if (messages[0].role === "user") conversation.user(messages[0].content);
  const answers = messages.filter((message) => message.role === "tool");
  for (const { toolCallId, content } of answers) conversation.result(toolCallId, content);
  try {
    await session.send(body);
  } catch (error) {
    // Nothing was taken.
    undo();
    conversation.entries.length = before;
    for (const { toolCallId } of answers) conversation.result(toolCallId, null);
    throw error;
  }
}

async function sendMessage() {
  const text = at("message").value;
  const images = pictures.blocks;
  if (at("send").disabled) return;
  if (!text.trim() && !images.length) return at("message").focus();
  const content = images.length ? [...(text.trim() ? [{ type: "text", text }] : []), ...images] : text;
  at("send").disabled = true;
  at("message").value = "";
  pictures.clear();
  decisions = new Map();
  try {
    await send([{ role: "user", content }]);
  } catch (error) {
    if (!at("message").value) at("message").value = text;
    pictures.restore(images);
    failed(error);
    render();
  }
}

async function stop() {
  at("stop").disabled = true;
  say("Stopping.");
  try {
    say(await session.stop());
    decisions = new Map();
  } catch (error) {
    failed(error);
  }
  render();
}

// --- calls that wait ---

function controlsFor(call) {
  if (!mayWrite || decisions.has(call.id)) return null;
  if (!setup.isServerTool(call.name)) return answerForm(call);
  // A tool that asks the person has no code: its call takes a result and no permission.
  const { questions } = call.input;
  return Array.isArray(questions) ? answerForm(call, questions) : permission(call);
}

function permission(call) {
  const reason = make("input", { type: "text", id: `reason-${call.id}`, maxlength: "1000", autocomplete: "off" });
  const decide = (granted, shown, trust = false) => {
    const message = { role: "tool_permission", toolCallId: call.id, granted };
    if (!granted && reason.value.trim()) message.reason = reason.value.trim();
    if (trust) setup.trust(call.name);
    decided(call, message, shown);
  };
  return make(
    "div",
    { class: "ask", role: "group", "aria-label": `Permission for ${call.name}` },
    make("p", {}, "The agent asks to run ", make("strong", { dir: "auto" }, call.name), "."),
    make("div", { class: "buttons" },
      make("button", { type: "button", class: "button small", onclick: () => decide(true, "allowed once") }, "Allow once"),
      make("button", { type: "button", class: "button quiet small", onclick: () => decide(true, "allowed in this session", true) }, "Allow in this session"),
      make("button", { type: "button", class: "button danger small", onclick: () => decide(false, "denied") }, "Deny")),
    make("div", { class: "field" }, make("label", { for: reason.id }, "Reason, if you deny (optional)"), reason),
    make("details", {}, make("summary", {}, "Answer in its place"), make("p", { class: "help" }, "The agent gets your text as the result, and the tool does not run."), typed(call)),
  );
}

function answerForm(call, questions = []) {
  const asked = questions.map((each) => make("li", { dir: "auto" }, typeof each === "string" ? each : pretty(each?.question ?? each?.message ?? each)));
  return make(
    "div",
    { class: "ask", role: "group", "aria-label": `Answer for ${call.name}` },
    asked.length ? make("ol", {}, asked) : null,
    typed(call),
    make("div", { class: "buttons" }, make("button", { type: "button", class: "button danger small", onclick: () => decided(call, { role: "tool_permission", toolCallId: call.id, granted: false }, "denied") }, "Deny")),
  );
}

// A field for the result of a call, typed by the person.
function typed(call) {
  const answer = make("textarea", { id: `answer-${call.id}`, rows: "3" });
  const give = () => decided(call, { role: "tool", toolCallId: call.id, content: answer.value }, "answered by you");
  return [
    make("div", { class: "field" }, make("label", { for: answer.id }, "Your answer, as the result of ", make("strong", { dir: "auto" }, call.name)), answer),
    make("div", { class: "buttons" }, make("button", { type: "button", class: "button small", onclick: give }, "Answer")),
  ];
}

function decided(call, message, shown) {
  const isFocused = at("entries").contains(document.activeElement);
  decisions.set(call.id, message);
  conversation.decide(call.id, { shown });
  show();
  // The button that was pressed is gone: the next call that waits, or the message, has the focus.
  if (isFocused) (at("entries").querySelector(".ask button") ?? at("message")).focus();
  const pending = conversation.pending;
  if (pending.every((each) => decisions.has(each.id))) sendDecisions();
}

function answerCanned() {
  if (!mayWrite || session.busy) return;
  for (const call of conversation.pending) {
    const answer = setup.isServerTool(call.name) ? null : setup.canned(call.name);
    if (answer !== null && !decisions.has(call.id)) decided(call, { role: "tool", toolCallId: call.id, content: answer }, "answered by this page");
  }
}

async function sendDecisions() {
  const calls = conversation.pending.filter((call) => decisions.has(call.id));
  const messages = calls.map((call) => decisions.get(call.id));
  if (!messages.length || session.busy) return;
  for (const call of calls) decisions.delete(call.id);
  try {
    await send(messages);
  } catch (error) {
    failed(error);
    // Ask again: nothing was taken.
    for (const call of calls) conversation.decide(call.id, null);
  }
  render();
}

// --- events of the page ---

at("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  sendMessage();
});
at("message").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    sendMessage();
  }
});
at("stop").addEventListener("click", stop);
at("watching").addEventListener("change", (event) => {
  at("watch").hidden = !event.target.checked;
  at("panes").classList.toggle("watched", event.target.checked);
  render();
});
at("partial").addEventListener("click", sendDecisions);
at("new").addEventListener("click", newSession);
at("agent").addEventListener("change", newSession);
at("session").addEventListener("change", (event) => {
  if (event.target.value) location.hash = event.target.value;
  else newSession();
});
at("picture-add").addEventListener("click", () => {
  const field = at("picture-address");
  if (field.value.trim()) pictures.addAddress(field.value.trim());
  field.value = "";
});
at("tenant").addEventListener("change", (event) => location.assign(event.target.selectedOptions[0].dataset.address));
addEventListener("hashchange", fromAddress);

start();
