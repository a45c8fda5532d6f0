// The reducers of a session's state in AHP 0.1: a state and an action give the next state. All actions of sessions are folded;
// actions of the root and of terminals, and types that are unknown here, return the same state object.
//
// Pure and total, like those of the server: the arguments are not changed, and an action that lacks a member changes nothing.
// `now` is Unix milliseconds, with which each side stamps `summary.modifiedAt`.

const IDLE = 1, ERROR = 2, IN_PROGRESS = 8, INPUT_NEEDED = 24, READ = 32, ARCHIVED = 64, ACTIVITY = 31;
const WAITING = ["pending-confirmation", "pending-result-confirmation"];
const BASE = ["toolCallId", "toolName", "displayName", "toolClientId", "_meta"];
const ASKED = ["invocationMessage", "toolInput"];

export function reduceSession(state, action, now) {
  const step = Object.hasOwn(STEPS, action?.type) ? STEPS[action.type] : null;
  if (!step) return state;
  try {
    return step(state, action, now) ?? state;
  } catch (error) {
    if (error instanceof TypeError) return state;
    throw error;
  }
}

// --- copies ---

// A copy with these members; undefined and null remove one, because the host writes no null.
function changed(whole, members) {
  const copy = { ...whole, ...members };
  for (const [name, value] of Object.entries(members)) if (value === undefined || value === null) delete copy[name];
  return copy;
}

function picked(source, ...names) {
  return Object.fromEntries(names.filter((name) => source[name] !== undefined && source[name] !== null).map((name) => [name, source[name]]));
}

function replaced(items, place, item) {
  return items.with(place, item);
}

function orNothing(items) {
  return items.length ? items : null;
}

// An action that lacks a member is treated like one that does not match.
function needed(value) {
  if (value === undefined || value === null) throw new TypeError("a member is missing");
  return value;
}

// --- status ---

function waits(turn) {
  return turn.responseParts.some((part) => part.kind === "toolCall" && WAITING.includes(part.toolCall.status));
}

function activity(state, failed) {
  if (failed) return ERROR;
  if (state.inputRequests?.length || (state.activeTurn && waits(state.activeTurn))) return INPUT_NEEDED;
  return state.activeTurn ? IN_PROGRESS : IDLE;
}

function summarized(state, members, touched) {
  const summary = changed(state.summary, touched === undefined ? members : { ...members, modifiedAt: touched });
  return { ...state, summary };
}

function recomputed(state, { failed = false, unread = false, touched } = {}) {
  let marks = state.summary.status & ~ACTIVITY;
  if (unread) marks &= ~READ;
  return summarized(state, { status: marks | activity(state, failed) }, touched);
}

function marked(state, bit, on) {
  const { status } = state.summary;
  return summarized(state, { status: on ? status | bit : status & ~bit });
}

// --- turns ---

function active(state, action) {
  return state.activeTurn && state.activeTurn.id === action.turnId ? state.activeTurn : null;
}

function withParts(state, responseParts) {
  return { ...state, activeTurn: { ...state.activeTurn, responseParts } };
}

function started(state, action, now) {
  let begun = { ...state, activeTurn: { id: action.turnId, userMessage: needed(action.userMessage), responseParts: [] } };
  const queued = action.queuedMessageId;
  if (queued !== undefined && queued !== null) {
    if (state.steeringMessage?.id === queued) begun = changed(begun, { steeringMessage: null });
    begun = withoutQueued(begun, queued);
  }
  return recomputed(begun, { unread: true, touched: now });
}

function added(state, action) {
  const turn = active(state, action);
  return turn && withParts(state, [...turn.responseParts, needed(action.part)]);
}

function grown(kind) {
  return (state, action) => {
    const turn = active(state, action);
    if (!turn) return state;
    const place = turn.responseParts.findIndex((part) => (part.kind === "toolCall" ? part.toolCall.toolCallId : part.id) === needed(action.partId));
    const part = turn.responseParts[place];
    if (part?.kind !== kind) return state;
    return withParts(state, replaced(turn.responseParts, place, { ...part, content: part.content + needed(action.content) }));
  };
}

function ended(how) {
  return (state, action, now) => {
    const turn = active(state, action);
    if (!turn) return state;
    const past = { id: turn.id, userMessage: turn.userMessage, responseParts: turn.responseParts.map(closed), ...picked(turn, "usage"), state: how };
    if (how === "error") past.error = needed(action.error);
    const over = changed(state, { turns: [...state.turns, past], activeTurn: null, inputRequests: null });
    return recomputed(over, { failed: how === "error", touched: now });
  };
}

function closed(part) {
  if (part.kind !== "toolCall" || ["completed", "cancelled"].includes(part.toolCall.status)) return part;
  const call = part.toolCall;
  const shown = { invocationMessage: "", ...picked(call, "invocationMessage"), ...(call.status === "streaming" ? {} : picked(call, "toolInput")) };
  return { kind: "toolCall", toolCall: { ...picked(call, ...BASE), ...shown, status: "cancelled", reason: "skipped" } };
}

function truncated(state, action, now) {
  let turns = [];
  if (action.turnId !== undefined && action.turnId !== null) {
    const place = state.turns.findIndex((turn) => turn.id === action.turnId);
    if (place < 0) return state;
    turns = state.turns.slice(0, place + 1);
  }
  return recomputed(changed(state, { turns, activeTurn: null, inputRequests: null }), { touched: now });
}

// --- tool calls ---

function stepped(state, action, step) {
  const turn = active(state, action);
  if (!turn) return state;
  let matched = false;
  const parts = turn.responseParts.map((part) => {
    if (part.kind !== "toolCall" || part.toolCall.toolCallId !== action.toolCallId) return part;
    const call = step(part.toolCall);
    if (!call) return part;
    matched = true;
    return { ...part, toolCall: call };
  });
  return matched ? withParts(state, parts) : state;
}

function called(state, action) {
  const turn = active(state, action);
  return turn && withParts(state, [...turn.responseParts, { kind: "toolCall", toolCall: { ...picked(action, ...BASE), status: "streaming" } }]);
}

function callGrown(state, action) {
  return stepped(state, action, (call) =>
    call.status === "streaming" && { ...call, partialInput: (call.partialInput ?? "") + needed(action.content), ...picked(action, "invocationMessage") });
}

function callReady(state, action) {
  return recomputed(stepped(state, action, (call) => {
    if (!["streaming", "running"].includes(call.status)) return null;
    const known = { ...picked(call, ...BASE), ...picked(action, ...ASKED) };
    if (action.confirmed) return { ...known, status: "running", confirmed: action.confirmed };
    return { ...known, status: "pending-confirmation", ...picked(action, "confirmationTitle", "edits", "editable", "options") };
  }));
}

function callConfirmed(state, action) {
  return recomputed(stepped(state, action, (call) => {
    if (call.status !== "pending-confirmation") return null;
    const known = picked(call, ...BASE, ...ASKED);
    const option = action.selectedOptionId && call.options?.find((each) => each.id === action.selectedOptionId);
    if (option) known.selectedOption = option;
    if (!action.approved) return { ...known, status: "cancelled", ...picked(action, "reason", "reasonMessage", "userSuggestion") };
    if (action.editedToolInput !== undefined && action.editedToolInput !== null) known.toolInput = action.editedToolInput;
    return { ...known, status: "running", ...picked(action, "confirmed") };
  }));
}

function callCompleted(state, action) {
  const status = action.requiresResultConfirmation ? "pending-result-confirmation" : "completed";
  return recomputed(stepped(state, action, (call) => {
    if (!["running", "pending-confirmation"].includes(call.status)) return null;
    const result = needed(action.result);
    const known = { ...picked(call, ...BASE, ...ASKED), confirmed: "not-needed" };
    if (call.status === "running") Object.assign(known, picked(call, "confirmed", "selectedOption"));
    return { ...picked(result, ...Object.keys(result)), ...known, status };
  }));
}

function resultConfirmed(state, action) {
  return recomputed(stepped(state, action, (call) => {
    if (call.status !== "pending-result-confirmation") return null;
    if (action.approved) return { ...call, status: "completed" };
    return { ...picked(call, ...BASE, ...ASKED, "selectedOption"), status: "cancelled", reason: "result-denied" };
  }));
}

function contentChanged(state, action) {
  return stepped(state, action, (call) => call.status === "running" && { ...call, content: needed(action.content) });
}

// --- messages that wait, questions ---

function messageSet(state, action) {
  const message = { id: action.id, userMessage: action.userMessage };
  if (action.kind === "steering") return { ...state, steeringMessage: message };
  if (action.kind !== "queued") return state;
  const queue = state.queuedMessages ?? [];
  const place = queue.findIndex((each) => each.id === message.id);
  return { ...state, queuedMessages: place < 0 ? [...queue, message] : replaced(queue, place, message) };
}

function withoutQueued(state, id) {
  const queue = state.queuedMessages ?? [];
  const rest = queue.filter((each) => each.id !== id);
  return rest.length === queue.length ? state : changed(state, { queuedMessages: orNothing(rest) });
}

function messageRemoved(state, action) {
  if (action.kind === "queued") return withoutQueued(state, action.id);
  if (action.kind !== "steering" || state.steeringMessage?.id !== action.id) return state;
  return changed(state, { steeringMessage: null });
}

function reordered(state, action) {
  if (!state.queuedMessages) return state;
  const order = [...new Set(action.order)];
  const rank = (each) => (order.includes(each.id) ? order.indexOf(each.id) : order.length);
  return { ...state, queuedMessages: [...state.queuedMessages].sort((one, other) => rank(one) - rank(other)) };
}

function requested(state, action, now) {
  const { request } = action;
  const open = state.inputRequests ?? [];
  const place = open.findIndex((each) => each.id === request.id);
  const inputRequests = place < 0 ? [...open, request] : replaced(open, place, changed(request, { answers: request.answers ?? open[place].answers }));
  return recomputed({ ...state, inputRequests }, { unread: true, touched: now });
}

function answerChanged(state, action, now) {
  const open = state.inputRequests ?? [];
  const place = open.findIndex((each) => each.id === action.requestId);
  if (place < 0) return state;
  const answers = changed(open[place].answers ?? {}, { [needed(action.questionId)]: action.answer });
  const request = changed(open[place], { answers: Object.keys(answers).length ? answers : null });
  return summarized({ ...state, inputRequests: replaced(open, place, request) }, {}, now);
}

function inputCompleted(state, action, now) {
  const open = state.inputRequests ?? [];
  const rest = open.filter((each) => each.id !== action.requestId);
  if (rest.length === open.length) return state;
  return recomputed(changed(state, { inputRequests: orNothing(rest) }), { touched: now });
}

// --- the rest of a session ---

function configured(state, action, now) {
  if (!state.config) return state;
  const values = action.replace ? { ...needed(action.config) } : { ...state.config.values, ...needed(action.config) };
  return summarized({ ...state, config: { ...state.config, values } }, {}, now);
}

function toggled(state, action) {
  const place = (state.customizations ?? []).findIndex((each) => each.customization.uri === action.uri);
  if (place < 0) return state;
  return { ...state, customizations: replaced(state.customizations, place, { ...state.customizations[place], enabled: needed(action.enabled) }) };
}

function customized(state, action) {
  const entries = state.customizations ?? [];
  const place = entries.findIndex((each) => each.customization.uri === action.customization.uri);
  const news = { customization: action.customization, ...picked(action, "enabled", "status", "statusMessage") };
  if (place < 0) return { ...state, customizations: [...entries, { enabled: false, ...news }] };
  return { ...state, customizations: replaced(entries, place, { ...entries[place], ...news }) };
}

const STEPS = {
  "session/ready": (state) => summarized({ ...state, lifecycle: "ready" }, { status: IDLE }),
  "session/creationFailed": (state, action) => ({ ...state, lifecycle: "creationFailed", creationError: needed(action.error) }),
  "session/turnStarted": started,
  "session/responsePart": added,
  "session/delta": grown("markdown"),
  "session/reasoning": grown("reasoning"),
  "session/usage": (state, action) => active(state, action) && { ...state, activeTurn: { ...state.activeTurn, usage: needed(action.usage) } },
  "session/turnComplete": ended("complete"),
  "session/turnCancelled": ended("cancelled"),
  "session/error": ended("error"),
  "session/truncated": truncated,
  "session/toolCallStart": called,
  "session/toolCallDelta": callGrown,
  "session/toolCallReady": callReady,
  "session/toolCallConfirmed": callConfirmed,
  "session/toolCallComplete": callCompleted,
  "session/toolCallResultConfirmed": resultConfirmed,
  "session/toolCallContentChanged": contentChanged,
  "session/titleChanged": (state, action, now) => summarized(state, { title: needed(action.title) }, now),
  "session/modelChanged": (state, action, now) => summarized(state, { model: needed(action.model) }, now),
  "session/isReadChanged": (state, action) => marked(state, READ, action.isRead),
  "session/isArchivedChanged": (state, action) => marked(state, ARCHIVED, action.isArchived),
  "session/activityChanged": (state, action) => summarized(state, { activity: action.activity }),
  "session/diffsChanged": (state, action) => summarized(state, { diffs: needed(action.diffs) }),
  "session/metaChanged": (state, action) => changed(state, { _meta: action._meta }),
  "session/serverToolsChanged": (state, action) => ({ ...state, serverTools: needed(action.tools) }),
  "session/configChanged": configured,
  "session/activeClientChanged": (state, action) => changed(state, { activeClient: action.activeClient }),
  "session/activeClientToolsChanged": (state, action) => state.activeClient && { ...state, activeClient: { ...state.activeClient, tools: needed(action.tools) } },
  "session/customizationsChanged": (state, action) => ({ ...state, customizations: needed(action.customizations) }),
  "session/customizationToggled": toggled,
  "session/customizationUpdated": customized,
  "session/inputRequested": requested,
  "session/inputAnswerChanged": answerChanged,
  "session/inputCompleted": inputCompleted,
  "session/pendingMessageSet": messageSet,
  "session/pendingMessageRemoved": messageRemoved,
  "session/queuedMessagesReordered": reordered,
};
