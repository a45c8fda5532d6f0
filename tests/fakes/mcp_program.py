"""An MCP server that is a program with the standard library alone, whose tools have every kind of trouble.

It runs in a sandbox, which sees nothing of this repository: ``COMMAND`` carries it on the command line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

COMMAND = ("python3", "-c", Path(__file__).read_text(encoding="utf-8")) if "__file__" in globals() else ()
TOOLS = (
    "where", "count", "crash", "noise", "rubbish", "chatter", "large", "endless", "hang", "ask", "deaf", "eat", "write", "read",
    "fail", "reach", "complain", "interrogate", "nested",
)  # fmt: skip


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def complaint(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def where(_given: dict[str, Any]) -> str:
    path = os.environ.get("LOOK_AT", ".")
    found = {"environment": dict(os.environ), "directory": str(Path.cwd()), "files": os.listdir(path)}  # noqa: PTH208
    return json.dumps({**found, "processes": sorted(name for name in os.listdir("/proc") if name.isdigit())})  # noqa: PTH208


_calls = 0


def count(_given: dict[str, Any]) -> str:
    global _calls
    _calls += 1
    return str(_calls)


def crash(given: dict[str, Any]) -> str:
    complaint(f"it goes wrong with {os.environ.get('TOKEN')}")
    if given.get("leave"):
        subprocess.Popen(["sleep", given["leave"]])
    os._exit(3)


def noise(_given: dict[str, Any]) -> str:
    sys.stdout.write("Server ready!\n\n[1, 2]\n{}\n\x00\xff\n")
    return "after all"


def rubbish(_given: dict[str, Any]) -> str:
    while True:
        sys.stdout.write("rubbish of " + os.environ.get("TOKEN", "") + "\n" + "\n" * 50)


def chatter(_given: dict[str, Any]) -> str:
    while True:
        send({"method": "notifications/message", "params": {"level": "info", "data": "x" * 200}})


def interrogate(_given: dict[str, Any]) -> str:
    for number in range(5_000):
        send({"id": f"q{number}", "method": "elicitation/create", "params": QUESTION})
    return "asked"


def large(given: dict[str, Any]) -> str:
    return "x" * int(given["bytes"])


def nested(_given: dict[str, Any]) -> str:
    sys.stdout.write(f'{{"jsonrpc": "2.0", "id": {_now}, "result": {"[" * 200_000}\n')
    return ""


def endless(_given: dict[str, Any]) -> str:
    while True:
        sys.stdout.write("x" * 65_536)


def hang(_given: dict[str, Any]) -> str:
    time.sleep(3_600)
    return "never"


QUESTION = {
    "message": "Which berth?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
}


def ask(_given: dict[str, Any]) -> str:
    send({"id": "q", "method": "elicitation/create", "params": QUESTION})
    while (answer := json.loads(sys.stdin.readline())).get("id") != "q":
        pass
    return json.dumps(answer.get("result") or answer.get("error"))


def deaf(_given: dict[str, Any]) -> str:
    os.close(0)
    time.sleep(3_600)
    return "never"


def eat(_given: dict[str, Any]) -> str:
    eaten = []
    while True:
        eaten.append(b"x" * 1_000_000)


def write(given: dict[str, Any]) -> str:
    Path(given["path"]).write_text(given["text"])
    return "written"


def read(given: dict[str, Any]) -> str:
    return Path(given["path"]).read_text()


def fail(_given: dict[str, Any]) -> str:
    raise ValueError("no such berth for " + os.environ.get("TOKEN", ""))


def reach(given: dict[str, Any]) -> str:
    import socket

    with socket.create_connection(("127.0.0.1", int(given["port"])), timeout=5):
        return "reached"


def complain(given: dict[str, Any]) -> str:
    for number in range(int(given["lines"])):
        complaint(f"complaint {number} {os.environ.get('TOKEN', '')} \x1b[31m {'x' * 5_000}")
    return "complained"


def answer(message: dict[str, Any]) -> dict[str, Any]:
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        found = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
        return {"result": {**found, "serverInfo": {"name": "berths", "version": "1"}}}
    if method == "tools/list":
        return {"result": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}}
    if method != "tools/call":
        return {"error": {"code": -32601, "message": "Method not found"}}
    try:
        text, failed = globals()[params["name"]](params.get("arguments") or {}), False
    except Exception as error:
        text, failed = f"{type(error).__name__}: {error}", True
    return {"result": {"content": [{"type": "text", "text": text}], "isError": failed}}


_now = 0


def main() -> None:
    global _now
    mode = os.environ.get("MODE", "")
    if mode == "dies" or (mode == "needs a token" and "TOKEN" not in os.environ):
        complaint(f"cannot start with {os.environ.get('TOKEN')}")
        sys.exit(4)
    if mode == "is silent":
        time.sleep(3_600)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            _now = message["id"]
            send({"id": message["id"], **answer(message)})


if __name__ == "__main__":
    main()
