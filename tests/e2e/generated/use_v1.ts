// Uses what openapi-typescript has made of version 1's document, against a server that runs: node use_v1.js BASE_URL KEY
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { paths } from "./v1.js";

const [baseUrl, key] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });

const meta = await client.GET("/meta");
assert.equal(meta.data?.version, 1);

const opened = await client.PUT("/session", {
  body: {
    agent: { name: "demo", tools: [{ name: "calculator", trust: true }] },
    messages: [{ role: "user", content: "What is 17 * 23?" }],
    stream: "none",
  },
});
assert.equal(opened.response.status, 201);
assert.ok(opened.data && typeof opened.data === "object" && "sessionId" in opened.data);
const path = { session_id: opened.data.sessionId };

const session = await client.GET("/session/{session_id}", { params: { path, query: { history: "full" } } });
assert.deepEqual(session.data?.history?.full?.map((line) => line.role), ["user", "assistant", "tool", "assistant"]);
const listed = await client.GET("/sessions");
assert.ok(listed.data?.sessions.includes(path.session_id));
const missing = await client.GET("/session/{session_id}", { params: { path: { session_id: "sess_nobody" } } });
assert.equal(missing.error?.status, 404);
assert.equal((await client.DELETE("/session/{session_id}", { params: { path } })).response.status, 204);
