"""What a check has found, and how it is printed. Knows nothing of Django: it also reports settings that do not load."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from agenthost.observability import masked

State = Literal["ok", "warning", "fail"]
_SHOWN = {"ok": "ok", "warning": "warning", "fail": "FAIL"}


@dataclass(frozen=True, slots=True)
class Finding:
    """``fix`` says what to do; empty if nothing has to be done."""

    check: str
    state: State
    detail: str
    fix: str = ""


def ok(check: str, detail: str) -> Finding:
    return Finding(check, "ok", detail)


def warning(check: str, detail: str, fix: str) -> Finding:
    return Finding(check, "warning", detail, fix)


def fail(check: str, detail: str, fix: str) -> Finding:
    return Finding(check, "fail", detail, fix)


def exit_code(findings: Sequence[Finding]) -> int:
    return 1 if any(finding.state == "fail" for finding in findings) else 0


class Output(Protocol):
    def write(self, text: str, /) -> Any: ...


def write(findings: Sequence[Finding], out: Output, *, as_json: bool) -> None:
    """One line a finding; as JSON one object. Nothing that is masked in the log is printed."""
    if as_json:
        checks = [{name: masked(text) for name, text in asdict(finding).items()} for finding in findings]
        document = {"ok": exit_code(findings) == 0, "checks": checks}
        out.write(json.dumps(document, ensure_ascii=False, indent=2) + "\n")
        return
    for finding in findings:
        text = " ".join(f"{finding.detail} {finding.fix}".split())
        out.write(masked(f"{_SHOWN[finding.state]:<8} {finding.check:<10} {text}") + "\n")
