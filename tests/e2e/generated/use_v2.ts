// Uses what openapi-typescript has made of version 2's document, against a server that runs: node use_v2.js BASE_URL KEY
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./v2.js";

const [baseUrl, key] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });

const meta = await client.GET("/meta");
assert.equal(meta.data?.version, 2);

const opening: components["schemas"]["SessionOpening"] = {
  agent: { name: "demo", tools: [{ name: "calculator", trust: true }] },
  messages: [{ role: "user", content: "What is 17 * 23?" }],
  stream: "none",
};
const opened = await client.PUT("/session", { body: opening });
assert.equal(opened.response.status, 201);
assert.ok(opened.data && typeof opened.data === "object" && "sessionId" in opened.data);
assert.equal(opened.data.messages[1].content, "391");
const path = { session_id: opened.data.sessionId };

const full = await client.GET("/session/{session_id}/history", { params: { path, query: { type: "full" } } });
assert.ok(full.data && "full" in full.data.history);
assert.deepEqual(full.data.history.full.map((line) => line.role), ["user", "assistant", "tool", "assistant"]);
const cancelled = await client.POST("/session/{session_id}/cancel", { params: { path }, body: {} });
assert.equal(cancelled.data?.cancelled, false);
const missing = await client.GET("/session/{session_id}", { params: { path: { session_id: "sess_nobody" } } });
assert.equal(missing.error?.status, 404);
assert.equal((await client.DELETE("/session/{session_id}", { params: { path } })).response.status, 204);
