"""What a check has found, and how it is printed. Knows nothing of Django: it also reports settings that do not load."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

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


def line(finding: Finding) -> str:
    """One line for a person. Nothing that is masked in the log is shown."""
    text = " ".join(f"{finding.detail} {finding.fix}".split())
    return masked(f"{_SHOWN[finding.state]:<8} {finding.check:<10} {text}")


def document(findings: Sequence[Finding]) -> str:
    """All of them for a program, as JSON, masked like the lines."""
    checks = [{name: masked(text) for name, text in asdict(finding).items()} for finding in findings]
    return json.dumps({"ok": exit_code(findings) == 0, "checks": checks}, ensure_ascii=False, indent=2)
