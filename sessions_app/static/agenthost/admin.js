// Copy buttons, folding, progress that is loaded again, and replacing the address of a page that must not be reloaded. Everything works without it.
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

  // This page is the response to a POST. Reloading it would issue another key, so its address becomes that of the list.
  const leaving = document.querySelector("[data-leave-for]");
  if (leaving) history.replaceState(null, "", leaving.dataset.leaveFor);
});
