// Requests as code to copy: curl, Python, TypeScript. The key is a placeholder, and so are secrets; the token is never here.

import { make, replace, shortened } from "./dom.js";

const MOST = 30;
const LANGUAGES = { curl, Python: python, TypeScript: typescript };

export class Requests {
  #list;
  #entries = [];
  #secrets;

  // `secrets()`: the names of options whose values are not shown.
  constructor(list, secrets) {
    this.#list = list;
    this.#secrets = secrets;
  }

  add({ method, path, body, status }) {
    const masked = withoutSecrets(body, this.#secrets());
    this.#entries.unshift({ method, path, body: masked, status });
    if (this.#entries.length > MOST) this.#list.lastElementChild.remove();
    this.#entries.length = Math.min(this.#entries.length, MOST);
    if (this.#list.firstElementChild?.tagName !== "LI") replace(this.#list);
    this.#list.prepend(entry({ method, path, body: masked, status }));
  }
}

function entry(request) {
  const code = make("pre", { tabindex: "0", hidden: true });
  const said = make("span", { class: "help", role: "status" });
  const show = (language) => async () => {
    const text = LANGUAGES[language](request, location.origin);
    code.hidden = false;
    code.textContent = shortened(text, 6000);
    try {
      await navigator.clipboard.writeText(text);
      said.textContent = `Copied as ${language}.`;
    } catch {
      said.textContent = "This browser does not let the page copy: select the text.";
    }
  };
  const name = `${request.method} ${request.path}`;
  return make(
    "li",
    { class: "tool" },
    make("div", { class: "row" }, make("code", {}, name), make("span", { class: `badge ${request.status < 400 ? "good" : "bad"}` }, String(request.status))),
    make("div", { class: "buttons" }, Object.keys(LANGUAGES).map((language) => make("button", { type: "button", class: "button quiet small", onclick: show(language) }, language, make("span", { class: "hidden" }, `: copy ${name}`)))),
    said,
    code,
  );
}

function withoutSecrets(body, secrets) {
  const options = body?.agent?.options;
  if (!options) return body;
  const shown = Object.fromEntries(Object.entries(options).map(([name, value]) => [name, secrets.has(name) && value ? `YOUR ${name.toUpperCase()}` : value]));
  return { ...body, agent: { ...body.agent, options: shown } };
}

function streams(request) {
  return request.path.includes("/events/stream") || (request.body?.stream ?? "none") !== "none";
}

export function curl({ method, path, body, ...rest }, origin) {
  const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const lines = [`curl -s${streams({ path, body, ...rest }) ? "N" : ""} -X ${method} ${quoted(origin + path)}`, '-H "Authorization: Bearer $AGENTHOST_KEY"'];
  if (body !== undefined) lines.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(body))}`);
  return lines.join(" \\\n  ");
}

export function python({ method, path, body }, origin) {
  const call = `${JSON.stringify(method)}, ${JSON.stringify(origin + path)}, headers=headers${body === undefined ? "" : ", json=body"}, timeout=None`;
  const lines = ["import os", "", "import httpx", "", 'headers = {"Authorization": f"Bearer {os.environ[\'AGENTHOST_KEY\']}"}'];
  if (body !== undefined) lines.push(`body = ${literal(body, "")}`);
  if (streams({ path, body })) lines.push(`with httpx.stream(${call}) as response:`, "    response.raise_for_status()", "    for line in response.iter_lines():", "        print(line)");
  else lines.push(`response = httpx.request(${call})`, "response.raise_for_status()", "print(response.text)");
  return `${lines.join("\n")}\n`;
}

// A value of JSON as Python writes it.
function literal(value, indent) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const deeper = `${indent}    `;
  const items = Array.isArray(value)
    ? value.map((item) => literal(item, deeper))
    : Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${literal(item, deeper)}`);
  const [left, right] = Array.isArray(value) ? "[]" : "{}";
  if (!items.length) return left + right;
  return `${left}\n${items.map((item) => `${deeper}${item},\n`).join("")}${indent}${right}`;
}

export function typescript({ method, path, body }, origin) {
  const lines = [`const response = await fetch(${JSON.stringify(origin + path)}, {`, `  method: ${JSON.stringify(method)},`];
  const type = body === undefined ? "" : ', "Content-Type": "application/json"';
  lines.push(`  headers: { Authorization: \`Bearer \${process.env.AGENTHOST_KEY}\`${type} },`);
  if (body !== undefined) lines.push(`  body: JSON.stringify(${JSON.stringify(body, null, 2).replaceAll("\n", "\n  ")}),`);
  lines.push("});", "if (!response.ok) throw new Error(await response.text());");
  if (streams({ path, body })) {
    // Without types, so that it runs as JavaScript too.
    lines.push("for await (const chunk of response.body?.pipeThrough(new TextDecoderStream()) ?? []) process.stdout.write(chunk);");
  } else if (method === "DELETE") lines.push("console.log(response.status);");
  else lines.push("console.log(await response.json());");
  return `${lines.join("\n")}\n`;
}
