// Follows a session live: shows the output that streams, and reads the page again when a part of it is stored.
import { Aap, batches } from "./playground/aap.js";
import { Access, Refused, SignedOut } from "./playground/access.js";
import { make } from "./playground/dom.js";
import { GrowingText } from "./playground/growing.js";

const REREAD_MS = 700;
const RETRY_MS = [1000, 2000, 5000, 10000, 30000];

const live = document.getElementById("live");
if (live) new Follower(live, document.getElementById("following")).run();

function Follower(place, status) {
  const csrf = place.querySelector("[name=csrfmiddlewaretoken]").value;
  const aap = new Aap(new Access(place.dataset.token, csrf));
  let step = null;
  let position = null;
  let reread = null;

  // The output of one step of the model, until the page shows it as a message.
  function current() {
    if (step === null) {
      step = { box: make("div"), thinking: null, growing: null, text: "" };
      place.append(step.box);
    }
    return step;
  }

  function showThinking(delta) {
    const shown = current();
    if (shown.thinking === null) {
      shown.thinking = make("div", { class: "ah-text", dir: "auto" });
      shown.box.append(make("details", { class: "ah-fold ah-thinking" }, make("summary", {}, "Thinking"), shown.thinking));
    }
    shown.thinking.append(delta);
  }

  function showText(delta) {
    const shown = current();
    if (shown.growing === null) {
      shown.growing = new GrowingText(make("div", { class: "ah-markdown", dir: "auto" }));
      shown.box.append(shown.growing.element);
    }
    shown.text += delta;
    shown.growing.show(shown.text);
  }

  function take(event) {
    if (event.comment !== undefined) return;
    if (event.id) position = event.id;
    switch (event.event) {
      case "turn_start":
        status.textContent = "The agent is working.";
        current();
        soon();
        break;
      case "text_delta":
        showText(event.data.delta);
        break;
      case "thinking_delta":
        showThinking(event.data.delta);
        break;
      case "tool_call":
        status.textContent = `The agent calls the tool ${event.data.name}.`;
        stored();
        break;
      case "tool_result":
        status.textContent = "The agent is working.";
        stored();
        break;
      case "turn_stop":
        status.textContent = event.data.stopReason === "tool_use" ? "The turn waits for its client." : "The turn has ended.";
        stored();
        break;
    }
  }

  function stored() {
    step?.box.classList.add("is-stored");
    step = null;
    soon();
  }

  // Read the page again, together for what happens within a moment.
  function soon() {
    reread ??= setTimeout(async () => {
      reread = null;
      const done = [...place.querySelectorAll(".is-stored")];
      const address = new URL(location.href);
      address.searchParams.set("live", "1");
      const answer = await fetch(address, { redirect: "manual" }).catch(() => null);
      if (!answer?.ok) return;
      // Scripts of a parsed document do not run, and the server has escaped what users and agents wrote.
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const id of ["talk", "facts"]) {
        const newer = page.getElementById(id);
        if (newer) replace(document.getElementById(id), newer);
      }
      for (const box of done) box.remove();
    }, REREAD_MS);
  }

  function replace(old, newer) {
    const open = new Set([...old.querySelectorAll("details[open]")].map(placeOf));
    const focused = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    old.replaceWith(document.adoptNode(newer));
    for (const fold of newer.querySelectorAll("details")) if (open.has(placeOf(fold))) fold.open = true;
    if (focused) newer.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  }

  function placeOf(fold) {
    const message = fold.closest("article");
    return `${message?.id} ${message ? [...message.querySelectorAll("details")].indexOf(fold) : ""}`;
  }

  this.run = async () => {
    for (let failures = 0; ; failures += 1) {
      try {
        const answer = await aap.follow(place.dataset.session, "delta", position);
        failures = 0;
        for await (const events of batches(answer)) events.forEach(take);
      } catch (error) {
        if (error instanceof SignedOut) {
          status.textContent = "You are signed out: sign in again to follow this session.";
          return;
        }
        if (error instanceof Refused && [403, 404].includes(error.status)) {
          status.textContent = error.message;
          return;
        }
        if (error instanceof Refused && error.status === 410) position = null;
        status.textContent = "The connection was lost; trying again.";
      }
      await new Promise((waited) => setTimeout(waited, RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]));
    }
  };
}
