"""A person at the playground, in a real browser."""

from __future__ import annotations

import json

from tests.e2e.browser import Page
from tests.e2e.server import Server

ANSWER = """
const original = window.fetch;
window.fetch = (address, options) => {
  for (const [part, status, body, headers] of ANSWERS) {
    if (String(address).includes(part)) {
      const known = {"Content-Type": "application/json", ...headers};
      return Promise.resolve(new Response(JSON.stringify(body), {status, headers: known}));
    }
  }
  return original(address, options);
};
"""


class Person:
    """A person at the playground."""

    def __init__(self, server: Server, page: Page, cookie: tuple[str, str]) -> None:
        self.server, self.page = server, page
        page.call("Network.setCookie", name=cookie[0], value=cookie[1], url=server.origin())

    def open(self, session: str = "", agent: str = "echo") -> None:
        address = f"{self.server.origin()}/console/alice/playground/"
        self.page.open(f"{address}#{session}" if session else address)
        self.page.wait_for("document.querySelector('#agent').options.length")
        if not session:
            self.fill("#agent", agent)
            self.page.wait_for("!document.querySelector('#send').disabled")

    def fill(self, what: str, text: str) -> None:
        self.page.run(
            f"{{ const field = document.querySelector({what!r}); field.value = {json.dumps(text)};"
            " for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind, {bubbles: true})); }"
        )

    def click(self, what: str, text: str = "") -> None:
        """Click the first element that the selector finds and that has this text."""
        found = f"[...document.querySelectorAll({what!r})].find((one) => one.textContent.includes({text!r}) && !one.disabled)"
        self.page.wait_for(found)
        self.page.run(f"{found}.click()")

    def say(self, text: str) -> None:
        self.page.wait_for("!document.querySelector('#send').disabled")
        self.fill("#message", text)
        self.page.run("document.querySelector('#composer').requestSubmit()")

    def sees(self, text: str, where: str = "#entries") -> None:
        self.page.wait_for(f"document.querySelector({where!r})?.innerText.includes({text!r})")

    def text(self, where: str = "#entries") -> str:
        return str(self.page.run(f"document.querySelector({where!r}).innerText"))


def answering(person: Person, *answers: tuple[str, int, object, dict[str, str]]) -> None:
    """Answer requests whose address contains a text, instead of the server, from the next page on."""
    source = ANSWER.replace("ANSWERS", json.dumps(answers))
    person.page.call("Page.addScriptToEvaluateOnNewDocument", source=f"{{ {source} }}")
