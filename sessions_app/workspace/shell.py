"""The interactive shell of a terminal, with marks that show where commands begin and end.

bash prints the marks (OSC 633) from its prompt hooks. Each carries a nonce, so that no text that a program prints, such as a
file's content, is taken for one. It is no secret from the programs of the terminal's user, who may change the shell anyway.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

BASHRC_AT = "/run/agenthost/bashrc"
NONCE_VARIABLE = "AGENTHOST_NONCE"
LONGEST_LINE = 4096

# bash 4.4 or newer (PS0). The line is taken from the history, as typed; its control characters, ";" and "\" are sent as \xNN.
BASHRC = r"""# Made by the server for every terminal.
[ -r /etc/bash.bashrc ] && . /etc/bash.bashrc
[ -r ~/.bashrc ] && . ~/.bashrc
if [ -n "$AGENTHOST_NONCE" ]; then
  __agenthost_nonce=$AGENTHOST_NONCE
  unset AGENTHOST_NONCE
  HISTCONTROL=
  __agenthost_escaped() {
    local LC_ALL=C text=${1:0:4096} c
    text=${text//\\/\\x5c}
    text=${text//;/\\x3b}
    if [[ $text == *[[:cntrl:]]* ]]; then
      for c in {1..31} 127; do
        printf -v c '\\x%02x' "$c"
        printf -v __agenthost_c "$c"
        text=${text//"$__agenthost_c"/"$c"}
      done
    fi
    __agenthost_text=$text
  }
  __agenthost_started() {
    local line
    line=$(HISTTIMEFORMAT= builtin history 1)
    [[ $line =~ ^[[:space:]]*[0-9]+[*[:space:]][[:space:]] ]] && line=${line:${#BASH_REMATCH}}
    __agenthost_escaped "$line"
    builtin printf '\e]633;E;%s;%s\a\e]633;C;%s\a' "$__agenthost_text" "$__agenthost_nonce" "$__agenthost_nonce"
  }
  __agenthost_prompt() {
    local code=$?
    __agenthost_escaped "$PWD"
    builtin printf '\e]633;D;%s;%s\a\e]633;P;Cwd=%s;%s\a\e]633;A;%s\a' \
      "$code" "$__agenthost_nonce" "$__agenthost_text" "$__agenthost_nonce" "$__agenthost_nonce"
    return "$code"
  }
  PS0='$(__agenthost_started)'
  PROMPT_COMMAND=__agenthost_prompt
  PS1='\w\$ \[\e]633;B;$__agenthost_nonce\a\]'
fi
"""


@dataclass(frozen=True)
class Shell:
    """What to start, `start(box, shell.argv, shell.environment)`, and how to read its output, `ShellOutput(shell.nonce)`."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    nonce: str | None  # None: a shell without integration; no command is ever reported


def shell(root: Path | None = None) -> Shell:
    """bash with marks if the box's root has it, else sh."""
    bash = _bash(root)
    if bash is None:
        return Shell(("/bin/sh", "-i"), {"PS1": "$PWD$ "}, None)
    nonce = secrets.token_hex(16)
    argv = (bash, "--noprofile", "--rcfile", BASHRC_AT, "-i")
    return Shell(argv, {NONCE_VARIABLE: nonce, "SHELL": bash}, nonce)


def shell_of_command(line: str, root: Path | None = None) -> Shell:
    """bash, or sh, that runs one command for a reader that cannot page through its output."""
    argv = (_bash(root) or "/bin/sh", "-c", line)
    return Shell(argv, {"SHELL": argv[0], "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}, None)


def _bash(root: Path | None) -> str | None:
    return next((f"/{name}" for name in ("usr/bin/bash", "bin/bash") if ((root or Path("/")) / name).exists()), None)
