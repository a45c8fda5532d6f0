"""Gives a directory to the coding agent, with a task: a small AHP client.

    python fix.py DIRECTORY "the task"

It copies the files into a workspace, asks you before each edit and command, shows what the agent and its commands print, and
copies the changed files back. AGENTHOST_KEY has your key, AGENTHOST_URL the server (ws://127.0.0.1:8000/ahp).
"""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import secrets
import shlex
import sys
from pathlib import Path
from urllib.parse import quote, unquote

import websockets

URL = os.environ.get("AGENTHOST_URL", "ws://127.0.0.1:8000/ahp")
ids = itertools.count(1)


class Refused(Exception):
    pass


def read(directory: Path) -> dict[str, bytes]:
    """The files by path."""
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


async def main(directory: Path, task: str) -> None:
    headers = {"Authorization": f"Bearer {os.environ['AGENTHOST_KEY']}"}
    async with websockets.connect(URL, additional_headers=headers, max_size=None) as socket:
        later: list[dict] = []

        async def request(method: str, **params: object) -> dict:
            number = next(ids)
            await socket.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
            while (message := json.loads(await socket.recv())).get("id") != number:
                later.append(message)
            if "error" in message:
                raise Refused(f"{method}: {message['error']['message']}")
            return message["result"]

        async def send(action: dict) -> None:
            params = {"clientSeq": next(ids), "action": action}
            await socket.send(json.dumps({"jsonrpc": "2.0", "method": "dispatchAction", "params": params}))

        async def dispatch(kind: str, **members: object) -> None:
            await send({"type": f"session/{kind}", "session": session, "turnId": "fix", **members})

        async def make(folders: list[str]) -> None:
            """AHP has no command that makes a directory, so a terminal does it."""
            terminal = f"terminal:/{name}"
            await request("createTerminal", terminal=terminal, claim={"kind": "client", "clientId": "fix"}, cwd=root)
            await request("subscribe", resource=terminal)
            for line in [*(f"mkdir -p -- {shlex.quote(folder)}" for folder in folders), "exit"]:
                await send({"type": "terminal/input", "terminal": terminal, "data": f"{line}\r"})
            action: dict = {}
            while (action.get("type"), action.get("terminal")) != ("terminal/exited", terminal):
                message = later.pop(0) if later else json.loads(await socket.recv())
                action = message.get("params", {}).get("action", {})
            await request("disposeTerminal", terminal=terminal)

        name = f"{directory.name}-{secrets.token_hex(4)}"
        session, root = f"coder:/{name}", f"file:///projects/{name}"
        await request("initialize", protocolVersions=["0.1.0"], clientId="fix")
        await request("createSession", session=session, provider="coder", workingDirectory=root)
        files = read(directory)
        if folders := sorted({path.rpartition("/")[0] for path in files} - {""}):
            await make(folders)
        for path, data in files.items():
            encoded = base64.b64encode(data).decode()
            await request("resourceWrite", uri=f"{root}/{quote(path)}", data=encoded, encoding="base64")
        await request("subscribe", resource=session)
        await dispatch("turnStarted", userMessage={"text": task})
        changed: dict[str, str] = {}
        live: set[str] = set()
        while True:
            message = later.pop(0) if later else json.loads(await socket.recv())
            action = message.get("params", {}).get("action", {})
            match action.get("type"):
                case "session/delta" | "terminal/data":
                    print(action.get("content") or action.get("data") or "", end="", flush=True)
                case "session/toolCallReady":
                    print(f"\n> {action['invocationMessage']} {action.get('toolInput', '')}")
                    if "confirmationTitle" in action:
                        call, answer = action["toolCallId"], await asyncio.to_thread(input, "  Run it? [y/n] ")
                        if answer == "y":
                            await dispatch("toolCallConfirmed", toolCallId=call, approved=True, confirmed="user-action")
                        else:
                            await dispatch("toolCallConfirmed", toolCallId=call, approved=False, reason="denied")
                case "session/toolCallContentChanged":
                    for block in action["content"]:
                        if block["type"] == "terminal":
                            # A short command may be over already; its output is in the result.
                            with contextlib.suppress(Refused):
                                found = await request("subscribe", resource=block["resource"])
                                live.add(action["toolCallId"])
                                parts = found["snapshot"]["state"]["content"]
                                print("".join(part.get("value") or part.get("output") or "" for part in parts), end="")
                case "session/toolCallComplete" if action["toolCallId"] not in live:
                    print("".join(block["text"] for block in action["result"]["content"] if block["type"] == "text"))
                case "session/diffsChanged":
                    changed = {each["after"]["uri"]: each["after"]["content"]["uri"] for each in action["diffs"]}
                case "session/turnComplete":
                    break
                case "session/error" | "session/turnCancelled":
                    raise Refused(f"the turn failed: {action.get('error')}")
        for uri, content in changed.items():
            found = await request("resourceRead", uri=content, encoding="base64")
            file = directory / unquote(uri.removeprefix(f"{root}/"))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(base64.b64decode(found["data"]) if found["encoding"] == "base64" else found["data"].encode())
            print(f"\nchanged: {file}")


if __name__ == "__main__":
    try:
        asyncio.run(main(Path(sys.argv[1]).resolve(), " ".join(sys.argv[2:])))
    except Refused as refused:
        sys.exit(str(refused))
