"""The code in docs/webhooks.md that checks signatures, in Python and TypeScript."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from sessions_app.core.tenancy import webhooks

PAGE = Path(__file__).parents[2] / "docs" / "webhooks.md"
SECRET, OTHER = "whsec_" + "QUJD" * 8, "whsec_" + "REVG" * 8
BODY = '{"id":"evt_1","type":"turn.ended","data":{"text":"Grüße"}}'.encode()


def code(language: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def cases() -> list[tuple[dict[str, Any], bool]]:
    now = int(time.time())

    def request(at: int = now, body: bytes = BODY, secrets: tuple[str, ...] = (SECRET,), signed: bytes = BODY) -> dict[str, Any]:
        headers = {
            "webhook-id": "evt_1",
            "webhook-timestamp": str(at),
            "webhook-signature": webhooks.signatures(secrets, "evt_1", at, signed),
        }
        return {"headers": headers, "body": body.decode()}

    replayed = request()
    replayed["headers"] = {**replayed["headers"], "webhook-id": "evt_2"}
    later = request()
    later["headers"] = {**later["headers"], "webhook-timestamp": str(now + 1)}
    return [
        (request(), True),
        (request(secrets=(OTHER, SECRET)), True),
        (request(secrets=(OTHER,)), False),
        (request(body=BODY.replace(b"ended", b"other")), False),
        (request(at=now - 3600), False),
        (request(at=now + 3600), False),
        (replayed, False),
        (later, False),
    ]


def test_the_python_code_accepts_what_was_signed_and_nothing_else() -> None:
    scope: dict[str, Any] = {}
    exec(code("python"), scope)
    for request, accepted in cases():
        assert scope["verify"](SECRET, request["headers"], request["body"].encode()) is accepted, request


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_the_typescript_code_accepts_what_was_signed_and_nothing_else(tmp_path: Path) -> None:
    plain = re.sub(r"(\w+): (?:string|Buffer|Record<string, string>)(?=[,)])", r"\1", code("typescript")).replace(
        "): boolean", ")"
    )
    script = tmp_path / "verify.mjs"
    script.write_text(
        f"{plain}\nfor (const [request, wanted] of {json.dumps(cases())}) {{\n"
        f"  const found = verify({json.dumps(SECRET)}, request.headers, Buffer.from(request.body));\n"
        "  if (found !== wanted) throw new Error(JSON.stringify(request));\n}\n"
    )
    ended = subprocess.run(["node", str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
