"""A headless browser, controlled over its debugging protocol.

Needs a Chromium on the PATH (Debian: `apt-get install chromium`); no driver and no library beside it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MISSING = "no browser on the PATH; Debian, Ubuntu: apt-get install chromium"
START_SECONDS = 60.0
ANSWER_SECONDS = 60.0
# No network access except to this machine, and no dialogs.
OPTIONS = (
    "--headless=new",
    "--remote-debugging-port=0",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-sync",
    "--window-size=1280,900",
)


def find() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


class ScriptError(Exception):
    """An exception in a script of a page."""


class Page:
    """A tab, with its requests and errors since it was opened."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self.asked: list[str] = []
        """The URLs that the page requested."""
        self.complaints: list[str] = []
        """Console errors, uncaught exceptions and violations of the content security policy."""
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._connection.send(json.dumps({"id": number, "method": method, "params": parameters}))
        until = time.monotonic() + ANSWER_SECONDS
        while True:
            message = json.loads(self._connection.recv(timeout=max(0.0, until - time.monotonic())))
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message['error']}"
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def open(self, address: str) -> None:
        """Open the URL and wait for the load event."""
        self.call("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """Evaluate an expression, which may be a promise."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in done:
            raise ScriptError(done["exceptionDetails"].get("exception", {}).get("description", done["exceptionDetails"]["text"]))
        return done["result"].get("value")

    def wait_for(self, condition: str) -> Any:
        """Wait until an expression is true; returns its value."""
        return self.run(
            "new Promise((found, failed) => {"
            f" const until = Date.now() + {int(ANSWER_SECONDS * 500)};"
            f" const look = () => {{ let value; try {{ value = {condition}; }} catch (error) {{ value = null; }}"
            " if (value) found(typeof value === 'object' ? true : value);"
            f" else if (Date.now() > until) failed(new Error({json.dumps('never true: ' + condition)}));"
            " else setTimeout(look, 20); };"
            " look(); })"
        )

    def picture(self, path: Path) -> None:
        """Save a screenshot, for debugging."""
        import base64

        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def _note(self, message: Mapping[str, Any]) -> None:
        details = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.asked.append(details["request"]["url"])
            case "Runtime.exceptionThrown":
                thrown = details["exceptionDetails"]
                self.complaints.append(thrown.get("exception", {}).get("description", thrown["text"]))
            case "Log.entryAdded" if details["entry"]["level"] == "error":
                self.complaints.append(f"{details['entry']['text']} {details['entry'].get('url', '')}")


class Browser:
    def __init__(self, path: str, home: Path) -> None:
        self._stack = contextlib.ExitStack()
        self._home = home
        log = self._stack.enter_context((home / "browser.log").open("wb"))
        # The sandbox does not work for root in a container. The pages are our own.
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        command = [path, *OPTIONS, *sandbox, f"--user-data-dir={home / 'profile'}", "about:blank"]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._stack.callback(self._stop)
        try:
            self._control = self._stack.enter_context(self._connect("/devtools/browser/", self._port_and_path()[1]))
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def page(self) -> Iterator[Page]:
        """Open a tab in a browser context of its own."""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        try:
            with self._connect("/devtools/page/", target) as connection:
                yield Page(connection)
        finally:
            self._ask("Target.closeTarget", targetId=target)

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._control.send(json.dumps({"id": 1, "method": method, "params": parameters}))
        while (message := json.loads(self._control.recv(timeout=ANSWER_SECONDS))).get("id") != 1:
            pass
        assert "error" not in message, f"{method}: {message['error']}"
        result: dict[str, Any] = message["result"]
        return result

    def _connect(self, place: str, name: str) -> ClientConnection:
        port = self._port_and_path()[0]
        return connect(f"ws://127.0.0.1:{port}{place}{name}", max_size=None, proxy=None, open_timeout=ANSWER_SECONDS)

    def _port_and_path(self) -> tuple[str, str]:
        """The port that the browser listens on, from the file that it writes."""
        written = self._home / "profile" / "DevToolsActivePort"
        until = time.monotonic() + START_SECONDS
        while True:
            lines = written.read_text().splitlines() if written.exists() else []
            if len(lines) == 2:
                return lines[0], lines[1].rpartition("/")[2]
            said = (self._home / "browser.log").read_text(errors="replace")[-2000:]
            assert self._process.poll() is None, f"the browser ended: {said}"
            assert time.monotonic() < until, f"the browser did not start: {said}"
            time.sleep(0.05)

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(15)


@contextlib.contextmanager
def running(path: str) -> Iterator[Browser]:
    # Helper processes may still write files for a moment.
    with tempfile.TemporaryDirectory(prefix="agenthost-browser-", ignore_cleanup_errors=True) as home:
        browser = Browser(path, Path(home))
        try:
            yield browser
        finally:
            browser.close()


class _Blank(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!doctype html><title>An application</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """No access log."""


@contextlib.contextmanager
def blank_page() -> Iterator[str]:
    """Serve an empty page on another origin; yields the origin."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Blank)
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.05), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
