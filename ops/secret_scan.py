"""Credentials that must not be in the project: the formats in which vendors issue keys, private keys, passwords in addresses.

A made-up key of a test is allowed where it shows that it is one: its characters repeat or count up, or it contains a word
like `example`. `--history` looks through every line that any commit has added.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from ops.forbidden_text import ROOT, files

# The group is the secret. Prefixes are the vendors' published formats; each pattern is written so that it does not match itself.
FORMATS = {
    "a key of this server": re.compile(r"\b(ah_[A-Za-z0-9]{8}_[A-Za-z0-9_-]{32,})"),
    "a webhook's secret": re.compile(r"\b(whsec_[A-Za-z0-9+/=_-]{24,})"),
    "a key of a model provider": re.compile(
        r"\b(sk-(?:ant-|proj-|or-v1-)?[A-Za-z0-9_-]{32,}|gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{40,})"
    ),
    "a Google API key": re.compile(r"\b(AIza[A-Za-z0-9_-]{35})\b"),
    "an AWS access key": re.compile(r"\b((?:AKIA|ASIA)[A-Z0-9]{16})\b"),
    "a GitHub token": re.compile(r"\b(gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,})"),
    "a GitLab token": re.compile(r"\b(glpat-[A-Za-z0-9_-]{20,})"),
    "a Slack token": re.compile(r"\b(xox[abeprs]-[A-Za-z0-9-]{20,})"),
    "a Stripe key": re.compile(r"\b([rs]k_live_[A-Za-z0-9]{20,})"),
    "a token of a package registry": re.compile(r"\b(pypi-[A-Za-z0-9_-]{60,}|npm_[A-Za-z0-9]{36})\b"),
    "a private key": re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----(?:\\n|\s)*([A-Za-z0-9+/=]{40,})"),
    "a password in an address": re.compile(r"\b[a-z][a-z0-9+.]{2,20}://[^\s/:@'\"<>{}$]+:([^\s/@'\"<>{}$%…*]{12,})@"),
    "a value of a secret setting": re.compile(
        r"\b(?:AGENTHOST_SECRET_KEY|AGENTHOST_KEY_RING|[A-Z_]+_(?:API_KEY|TOKEN|PASSWORD))[\"']?\s*[=:]\s*[\"']?([A-Za-z0-9+/_-]{24,}=*)"
    ),
}
_MADE_UP = re.compile(
    r"(?i)example|dummy|fake|secret|password|canary|placeholder|not-?a|made-?up|hunter|sample|test|wrong|changeme|xxxx"
)
# Random characters of these lengths have more than 3.5 bits each; words, repetitions and sequences have less or are named above.
_RANDOM = 3.4
_SEQUENCES = ("0123456789", "abcdefghij", "ABCDEFGHIJ")


def looks_real(secret: str) -> bool:
    if _MADE_UP.search(secret) or any(sequence in secret for sequence in _SEQUENCES):
        return False
    if not any(character.isdigit() or character.isupper() for character in secret):
        return False  # words
    counts = Counter(secret)
    bits = -sum(count / len(secret) * math.log2(count / len(secret)) for count in counts.values())
    return bits >= min(_RANDOM, math.log2(len(secret)) - 0.9)


def found_in(text: str) -> list[tuple[int, str]]:
    """Lines and what is in them; never the secret itself, because this is printed in logs."""
    found = [
        (text.count("\n", 0, match.start()) + 1, what)
        for what, pattern in FORMATS.items()
        for match in pattern.finditer(text)
        if looks_real(match[1])
    ]
    return sorted(found)


def in_files(paths: Iterable[Path]) -> Iterator[str]:
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for line, what in found_in(text):
            yield f"{path.relative_to(ROOT).as_posix()}:{line}: {what}"


def in_history() -> Iterator[str]:
    """What commits have added, merged ones included: a key that was removed later is still published."""
    log = subprocess.Popen(
        ["git", "log", "--all", "--no-color", "--no-ext-diff", "--no-textconv", "--unified=0", "--format=commit %h", "-p"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    assert log.stdout is not None
    commit = name = ""
    added: list[str] = []

    def faults() -> Iterator[str]:
        yield from (f"{commit}: {name}: {what}" for _, what in found_in("".join(added)))
        added.clear()

    with log.stdout:
        for line in log.stdout:
            if line.startswith("+") and not line.startswith("+++ "):
                added.append(line[1:])
            elif line.startswith("+++ "):
                name = line[6:].strip()
            elif line.startswith(("commit ", "diff ")):
                yield from faults()
                commit = line.split()[1] if line.startswith("commit ") else commit
    yield from faults()
    if log.wait() != 0:
        yield "git log failed: nothing is known about the history"


def main(arguments: list[str]) -> int:
    found = list(in_history()) if arguments == ["--history"] else list(in_files(files()))
    for each in dict.fromkeys(found):
        print(each)
    if found:
        print("Revoke each real key first: whoever has a copy of the repository has it. Then remove it.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
