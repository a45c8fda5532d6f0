// Copy buttons, questions before an action, errors of passkeys. Everything but passkeys works without it.
"use strict";

document.addEventListener("DOMContentLoaded", () => {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(source.value);
        button.textContent = "Copied";
      } catch {
        // Without TLS browsers do not allow writing to the clipboard: select the text, so that Ctrl-C is enough.
        source.select();
        button.textContent = "Press Ctrl-C";
      }
    });
  }

  for (const field of document.querySelectorAll("[data-select]")) {
    field.addEventListener("focus", () => field.select());
  }

  for (const button of document.querySelectorAll("[data-confirm]")) {
    button.addEventListener("click", (event) => {
      if (!window.confirm(button.dataset.confirm)) event.preventDefault();
    });
  }

  // This page is the response to a POST. Reloading it would make another link.
  const leaving = document.querySelector("[data-leave-for]");
  if (leaving) history.replaceState(null, "", leaving.dataset.leaveFor);
});

// Sent by django-allauth's script when the browser has no passkey, or the person cancels.
document.addEventListener("allauth.error", (event) => {
  event.preventDefault();
  const text = document.createElement("p");
  text.className = "message error";
  text.setAttribute("role", "alert");
  text.textContent = `The passkey was not used: ${event.detail.exception.message ?? event.detail.exception}`;
  document.querySelector("main").prepend(text);
});
