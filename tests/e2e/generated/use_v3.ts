// Uses what openapi-typescript has made of version 3's document, against a server that runs: node use_v3.js BASE_URL KEY
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./v3.js";

const [baseUrl, key] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });
type Answer = components["schemas"]["TurnAnswer"];

const meta = await client.GET("/meta");
assert.equal(meta.data?.version, 3);
assert.ok(meta.data.agents.some((agent) => agent.name === "demo"));

const made = await client.POST("/sessions", { body: { agent: { name: "demo" } } });
assert.equal(made.response.status, 201);
assert.ok(made.data);
const path = { session_id: made.data.sessionId };

async function say(body: components["schemas"]["TurnRequest"]): Promise<Answer> {
  const { data, error } = await client.POST("/sessions/{session_id}/turns", { params: { path }, body });
  assert.equal(error, undefined);
  assert.ok(typeof data === "object" && "stopReason" in data);
  return data;
}

const waiting = await say({
  messages: [{ role: "user", content: [{ type: "text", text: "What is 17 * 23?" }] }],
  agent: { tools: [{ name: "calculator" }] },
});
assert.equal(waiting.stopReason, "tool_use");
const said = waiting.messages[0];
assert.ok(said.role === "assistant" && typeof said.content !== "string");
const call = said.content.find((block) => block.type === "tool_use");
assert.ok(call?.type === "tool_use");
const done = await say({
  messages: [{ role: "tool_permission", toolCallId: call.toolCallId, granted: true }],
});
assert.equal(done.messages[0].content, "391");

const full = await client.GET("/sessions/{session_id}/history", { params: { path, query: { type: "full" } } });
assert.ok(full.data && "full" in full.data.history);
assert.deepEqual(full.data.history.full.map((line) => line.role), ["user", "assistant", "tool", "assistant"]);
const compacted = await client.GET("/sessions/{session_id}/history", { params: { path, query: { type: "compacted" } } });
assert.ok(compacted.data && "compacted" in compacted.data.history);
assert.deepEqual(compacted.data.history.compacted, full.data.history.full);

const cancelled = await client.POST("/sessions/{session_id}/cancel", { params: { path }, body: {} });
assert.equal(cancelled.data?.cancelled, false);
const listed = await client.GET("/sessions");
assert.ok(listed.data?.sessions.some((each) => each.sessionId === path.session_id && each.agent.name === "demo"));
const missing = await client.GET("/sessions/{session_id}", { params: { path: { session_id: "sess_nobody" } } });
assert.equal(missing.error?.status, 404);
assert.equal((await client.DELETE("/sessions/{session_id}", { params: { path } })).response.status, 204);
