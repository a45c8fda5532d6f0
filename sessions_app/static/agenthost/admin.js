// Copy buttons, folding, progress that is loaded again, transcripts that go on, and replacing the address of a page that must not be reloaded. Everything works without it.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copy);
      const text = "value" in source ? source.value : source.textContent;
      const label = button.dataset.label ?? button.textContent;
      button.dataset.label = label;
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        // Without TLS browsers do not allow writing to the clipboard: select the text, so that Ctrl-C is enough.
        if ("select" in source) source.select();
        else window.getSelection().selectAllChildren(source);
        button.textContent = "Press Ctrl-C";
      }
      setTimeout(() => { button.textContent = label; }, 2500);
    });
  }

  for (const field of document.querySelectorAll("[data-select]")) {
    field.addEventListener("focus", () => field.select());
  }

  for (const button of document.querySelectorAll("[data-unfold]")) {
    button.addEventListener("click", () => {
      const folds = [...document.querySelectorAll(button.dataset.unfold)];
      const open = folds.some((fold) => !fold.open);
      for (const fold of folds) fold.open = open;
      for (const other of document.querySelectorAll("[data-unfold]")) other.textContent = open ? "Fold all" : "Unfold all";
    });
  }

  // A part of the page that changes by itself: loaded again until the server sends it without the attribute.
  const reload = async (part) => {
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      if (answer.ok && !answer.redirected) {
        const loaded = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(part.id);
        if (loaded) { part.replaceWith(loaded); part = loaded; }
      }
    } catch { /* The server is away for a moment. */ }
    if (part.dataset.reload) setTimeout(reload, 1000 * part.dataset.reload, part);
  };
  for (const part of document.querySelectorAll("[data-reload]")) setTimeout(reload, 1000 * part.dataset.reload, part);

  // Lists that are wider than a phone are scrolled with the keyboard too.
  for (const list of document.querySelectorAll("#changelist .results")) {
    list.tabIndex = 0;
    list.setAttribute("role", "region");
    list.setAttribute("aria-label", "List");
  }

  const talk = document.querySelector("[data-live]");
  if (talk) follow(talk);

  // This page is the response to a POST. Reloading it would issue another key, so its address becomes that of the list.
  const leaving = document.querySelector("[data-leave-for]");
  if (leaving) history.replaceState(null, "", leaving.dataset.leaveFor);
});

// Django makes these symbols with a label and without a role.
window.addEventListener("load", () => {
  for (const symbol of document.querySelectorAll(".help-tooltip[aria-label]")) symbol.setAttribute("role", "img");
});

// Show what happens in a session while its page is open. The server sends whole turns as HTML that it has made safe, and the
// output of a step as text.
const MOST_STREAMED = 200000;

function follow(talk) {
  const state = document.getElementById("live-state");
  const streaming = document.getElementById("streaming");
  const source = new EventSource(talk.dataset.live);
  const scroll = (change) => {
    const end = document.documentElement;
    const atEnd = end.scrollHeight - end.scrollTop - end.clientHeight < 80;
    change();
    if (atEnd) end.scrollTop = end.scrollHeight;
  };
  source.addEventListener("open", () => { state.textContent = "Live: this page follows the session."; });
  source.addEventListener("turn", (event) => scroll(() => {
    const { id, html } = JSON.parse(event.data);
    const turn = new DOMParser().parseFromString(html, "text/html").querySelector("section");
    const before = document.getElementById(id);
    if (before) {
      const opened = [...before.querySelectorAll("details")].map((each) => each.open);
      [...turn.querySelectorAll("details")].forEach((each, index) => { each.open = opened[index] ?? false; });
      before.replaceWith(turn);
    } else streaming.before(turn);
    document.getElementById("nothing-yet")?.remove();
  }));
  source.addEventListener("facts", (event) => {
    const facts = new DOMParser().parseFromString(JSON.parse(event.data), "text/html").getElementById("facts");
    document.getElementById("facts").replaceWith(facts);
    const stop = document.getElementById("stop");
    if (stop) stop.hidden = !("running" in facts.dataset);
  });
  source.addEventListener("settled", () => {
    streaming.hidden = true;
    for (const part of streaming.querySelectorAll("[data-kind]")) part.textContent = "";
    streaming.querySelector("details").hidden = true;
  });
  source.addEventListener("delta", (event) => scroll(() => {
    const { kind, text } = JSON.parse(event.data);
    const part = streaming.querySelector(`[data-kind="${kind}"]`);
    if (part.textContent.length < MOST_STREAMED) part.append(text);
    if (kind === "thinking") streaming.querySelector("details").hidden = false;
    streaming.hidden = false;
  }));
  source.addEventListener("over", (event) => {
    source.close();
    state.textContent = `Not live any more. ${JSON.parse(event.data)}`;
  });
  source.addEventListener("error", () => {
    state.textContent = source.readyState === EventSource.CLOSED
      ? "Not live: the server did not accept another page that follows a session, or you are signed out. Load the page again."
      : "The connection was lost; the page connects again by itself.";
  });
}
