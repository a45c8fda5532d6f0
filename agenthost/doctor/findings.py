"""Results of checks and their output. Imports no Django, because it also reports settings that do not load."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from agenthost.observability import masked

State = Literal["ok", "warning", "fail"]
_LABELS = {"ok": "ok", "warning": "warning", "fail": "FAIL"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check. ``fix`` is the instruction for the operator; empty if nothing has to be done."""

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
    """One line of text, with the same masking as log lines."""
    text = " ".join(f"{finding.detail} {finding.fix}".split())
    return masked(f"{_LABELS[finding.state]:<8} {finding.check:<10} {text}")


def document(findings: Sequence[Finding]) -> str:
    """All findings as JSON, with the same masking as log lines."""
    checks = [{name: masked(text) for name, text in asdict(finding).items()} for finding in findings]
    return json.dumps({"ok": exit_code(findings) == 0, "checks": checks}, ensure_ascii=False, indent=2)
