// The settings of a session: options, tools of the server, tools of the person's own. Knows what has to be sent, and shows it.

import { make, pretty, replace, shortened } from "./dom.js";

const NAME = /^[A-Za-z0-9_-]{1,64}$/;
const SAMPLE = {
  name: "look_up_order",
  description: "Finds an order by its number.",
  parameters: { type: "object", properties: { number: { type: "string" } }, required: ["number"] },
  answer: "shipped yesterday",
};

export class Setup {
  #places;
  #agent = null;
  // Options: what the person has changed and not sent yet.
  #changed = new Map();
  #values = new Map();
  #tools = new Map();
  #toolsChanged = false;
  #own = [];
  #ownChanged = false;

  // `places`: the elements {options, tools, own, form}. `store` keeps canned answers while the tab is open.
  constructor(places, store) {
    this.#places = places;
    this.store = store;
    places.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#declare();
    });
    places.sample.addEventListener("click", () => this.#fill({ ...SAMPLE, parameters: pretty(SAMPLE.parameters) }));
  }

  // Show an agent's settings: of an existing session (as AAP shows it), or of one that is still to be created.
  load(agent, session = null) {
    this.#agent = agent;
    this.#changed = new Map();
    this.#values = new Map(Object.entries(session?.agent.options ?? {}));
    this.#tools = new Map((session?.agent.tools ?? []).map((tool) => [tool.name, Boolean(tool.trust)]));
    this.#toolsChanged = false;
    if (session) this.#own = (session.tools ?? []).map((tool) => ({ ...tool, answer: this.store.get(tool.name) }));
    this.#ownChanged = !session && this.#own.length > 0;
    this.#show();
  }

  // The body of a request that creates a session.
  creation() {
    const agent = { name: this.#agent.name };
    if (this.#changed.size) agent.options = Object.fromEntries(this.#changed);
    if (this.#tools.size) agent.tools = this.#references();
    const body = { agent };
    if (this.#own.length) body.tools = this.#declared();
    return body;
  }

  // What the next turn has to change in the session.
  overrides() {
    const body = {};
    if (this.#changed.size) body.agent = { options: Object.fromEntries(this.#changed) };
    if (this.#toolsChanged) body.agent = { ...body.agent, tools: this.#references() };
    if (this.#ownChanged) body.tools = this.#declared();
    return body;
  }

  // What creation() or overrides() said is on its way. Returns a function for the case that the server refuses it.
  sent() {
    const before = [this.#changed, this.#values, this.#toolsChanged, this.#ownChanged];
    const secrets = this.#optionsOf("secret");
    const values = new Map(this.#values);
    for (const [name, value] of this.#changed) values.set(name, secrets.has(name) ? value && "***" : value);
    this.#values = values;
    this.#changed = new Map();
    this.#toolsChanged = this.#ownChanged = false;
    if (before[0].size) this.#showOptions();
    return () => {
      // What was typed meanwhile is newer.
      this.#changed = new Map([...before[0], ...this.#changed]);
      this.#values = before[1];
      this.#toolsChanged ||= before[2];
      this.#ownChanged ||= before[3];
      this.#showOptions();
    };
  }

  // The names of secret options, which no copied request shows.
  get secrets() {
    return this.#optionsOf("secret");
  }

  #optionsOf(type) {
    return new Set((this.#agent?.options ?? []).filter((option) => option.type === type).map((option) => option.name));
  }

  trust(name) {
    this.#tools.set(name, true);
    this.#toolsChanged = true;
    this.#showTools();
  }

  isServerTool(name) {
    return this.#tools.has(name) && !this.#own.some((tool) => tool.name === name);
  }

  canned(name) {
    return this.#own.find((tool) => tool.name === name)?.answer ?? null;
  }

  #references() {
    return [...this.#tools].map(([name, trust]) => (trust ? { name, trust } : { name }));
  }

  #declared() {
    return this.#own.map(({ name, title, description, parameters }) => ({ name, ...(title ? { title } : {}), description, parameters }));
  }

  #show() {
    this.#showOptions();
    this.#showTools();
    this.#showOwn();
  }

  #showOptions() {
    const options = this.#agent?.options ?? [];
    if (!options.length) return replace(this.#places.options, make("p", { class: "help" }, "This agent has no options."));
    const { id } = document.activeElement;
    replace(this.#places.options, options.map((option) => this.#option(option)));
    if (id && document.activeElement.id !== id) [...this.#places.options.querySelectorAll("[id]")].find((each) => each.id === id)?.focus();
  }

  #option(option) {
    const id = `option-${option.name}`;
    const help = make("p", { class: "help", id: `${id}-help`, dir: "auto" }, option.description ?? "");
    const set = (value) => {
      this.#changed.set(option.name, value);
    };
    const common = { id, name: id, autocomplete: "off", "aria-describedby": `${id}-help` };
    const stored = this.#values.get(option.name) ?? option.default;
    const current = this.#changed.get(option.name) ?? stored;
    let field;
    if (option.type === "select") {
      field = make(
        "select",
        { ...common, onchange: (event) => set(event.target.value) },
        option.options.map((choice) => make("option", { value: choice, selected: choice === current }, choice)),
      );
    } else if (option.type === "secret") {
      const isSet = stored === "***";
      field = make(
        "div",
        { class: "secret" },
        make("input", {
          ...common,
          type: "password",
          autocomplete: "new-password",
          value: this.#changed.get(option.name) ?? "",
          placeholder: isSet ? "*** (set; cannot be shown)" : "not set",
          oninput: (event) => (event.target.value ? set(event.target.value) : this.#changed.delete(option.name)),
        }),
        isSet && make("button", { type: "button", class: "button quiet small", onclick: () => (set(""), this.#values.delete(option.name), this.#showOptions()) }, "Use the default"),
      );
    } else {
      field = make("input", { ...common, type: "text", value: current, oninput: (event) => set(event.target.value) });
    }
    return make("div", { class: "field" }, make("label", { for: id, dir: "auto" }, option.title || option.name), field, help);
  }

  #showTools() {
    const tools = this.#agent?.tools ?? [];
    if (!tools.length) return replace(this.#places.tools, make("p", { class: "help" }, "This agent offers no tools to choose from."));
    replace(this.#places.tools, tools.map((tool) => this.#tool(tool)));
  }

  #tool(tool) {
    const set = (use, trust) => {
      if (use) this.#tools.set(tool.name, trust);
      else this.#tools.delete(tool.name);
      this.#toolsChanged = true;
    };
    const trusted = make("input", {
      type: "checkbox",
      checked: this.#tools.get(tool.name) ?? false,
      disabled: !this.#tools.has(tool.name),
      "aria-label": `Trust ${tool.name}: run it without asking`,
      onchange: () => set(true, trusted.checked),
    });
    const used = make("input", {
      type: "checkbox",
      checked: this.#tools.has(tool.name),
      onchange: () => {
        trusted.disabled = !used.checked;
        if (!used.checked) trusted.checked = false;
        set(used.checked, trusted.checked);
      },
    });
    return make(
      "div",
      { class: "tool" },
      make("label", {}, used, make("span", { dir: "auto" }, tool.title || tool.name)),
      make("label", { class: "help" }, trusted, "runs without asking"),
      make("p", { class: "help", dir: "auto" }, shortened(tool.description, 400)),
      schema(tool.parameters),
    );
  }

  #showOwn() {
    const takes = this.#agent?.capabilities?.application?.tools !== undefined;
    this.#places.form.hidden = !takes;
    if (!takes) return replace(this.#places.own, make("p", { class: "help" }, "This agent takes no tools from applications."));
    if (!this.#own.length) return replace(this.#places.own, make("p", { class: "help" }, "None yet. The agent calls a tool of yours, and this page answers: with a text that you set now, or that you type then."));
    replace(this.#places.own, this.#own.map((tool) => this.#ownTool(tool)));
  }

  #ownTool(tool) {
    return make(
      "div",
      { class: "tool" },
      make("div", { class: "row" }, make("strong", {}, tool.name), make("span", { class: "help" }, tool.answer === null ? "you type the answer" : "answers by itself")),
      make("p", { class: "help", dir: "auto" }, shortened(tool.description, 400)),
      schema(tool.parameters),
      make(
        "div",
        { class: "buttons" },
        make("button", { type: "button", class: "button quiet small", onclick: () => this.#fill({ ...tool, parameters: pretty(tool.parameters), answer: tool.answer ?? "" }) }, "Edit", make("span", { class: "hidden" }, ` ${tool.name}`)),
        make("button", { type: "button", class: "button danger small", onclick: () => this.#remove(tool) }, "Remove", make("span", { class: "hidden" }, ` ${tool.name}`)),
      ),
    );
  }

  #remove(tool) {
    this.#own = this.#own.filter((other) => other !== tool);
    this.#ownChanged = true;
    this.store.set(tool.name, null);
    this.#showOwn();
  }

  #fill({ name, description, parameters, answer }) {
    const { elements } = this.#places.form;
    elements.name.value = name;
    elements.description.value = description;
    elements.parameters.value = parameters;
    elements.answer.value = answer;
  }

  #declare() {
    const { elements } = this.#places.form;
    const name = elements.name.value.trim();
    const fault = (text) => replace(this.#places.fault, text && make("p", { class: "error", role: "alert" }, text));
    if (!NAME.test(name)) return fault("The name needs 1 to 64 letters, digits, _ or -.");
    let parameters;
    try {
      parameters = JSON.parse(elements.parameters.value || "{}");
    } catch (error) {
      return fault(`The schema is not JSON: ${error.message}`);
    }
    if (parameters === null || typeof parameters !== "object" || Array.isArray(parameters)) return fault('The schema must be a JSON object, for example {"type": "object"}.');
    const answer = elements.answer.value === "" ? null : elements.answer.value;
    const tool = { name, description: elements.description.value, parameters, answer };
    const place = this.#own.findIndex((other) => other.name === name);
    if (place < 0) this.#own.push(tool);
    else this.#own[place] = { ...this.#own[place], ...tool };
    this.#ownChanged = true;
    this.store.set(name, answer);
    fault(null);
    this.#places.form.reset();
    this.#showOwn();
  }
}

function schema(parameters) {
  return make("details", {}, make("summary", {}, "Schema"), make("pre", { tabindex: "0" }, pretty(parameters)));
}
