"""The agents file of the end-to-end tests; its agents use the scripted model server."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

DEFAULT_KEY = "sk-operators-canary-0b5e"
"""The default of the secret option. Only the model server may ever receive it."""
HEADER_SECRET = "hdr-operators-canary-77aa"

FULL = """
history = ["compacted", "full"]
stream = ["delta", "message", "none"]
client_tools = true
images = ["http", "data"]
"""

FILE = """
[[agents]]
name = "echo"
title = "Echo"
version = "1.0.0"
description = "Says what the script says."
model = "openai-chat:gpt-test"
base_url = "{model}"
api_key = "sk-echo"
instructions = "You are the echo."
{full}

[[agents]]
name = "pilot"
title = "Harbour Pilot"
version = "0.9.2"
description = "Knows tides and berths."
model = "openai-chat:{{brain}}"
base_url = "{model}"
api_key = "{{model_key}}"
instructions = "Tone: {{tone}}. Units: {{units}}."
settings = {{ temperature = 0.25 }}
headers = {{ X-Team = "{header}" }}
{full}
[[agents.options]]
type = "select"
name = "units"
options = ["metric", "imperial"]
default = "metric"
[[agents.options]]
type = "text"
name = "tone"
description = "How to speak"
default = "brief"
[[agents.options]]
type = "select"
name = "brain"
title = "Brain"
options = ["gpt-test", "gpt-other"]
default = "gpt-test"
[[agents.options]]
type = "secret"
name = "model_key"
title = "Model key"
default = "{default_key}"
[[agents.tools]]
python = "tests.fakes.tools:tide_table"
[[agents.tools]]
python = "tests.fakes.tools:order_rope"
[[agents.tools]]
python = "tests.fakes.tools:fail"
[[agents.tools]]
python = "tests.fakes.tools:inventory"
[[agents.tools]]
python = "tests.fakes.tools:unprintable"
[[agents.tools]]
python = "tests.fakes.tools:verbose"
[[agents.tools]]
python = "tests.fakes.tools:hang"
[[agents.tools]]
python = "tests.fakes.tools:block"
timeout = 100
[[agents.tools]]
python = "tests.fakes.tools:block_again"
timeout = 100
idempotent = true
[[agents.tools]]
python = "tests.fakes.tools:whisper"
expose = false
[[agents.tools]]
builtin = "calculator"

[[agents]]
name = "hasty"
version = "1.0.0"
model = "openai-chat:gpt-test"
base_url = "{model}"
api_key = "sk-hasty"
{full}
[[agents.tools]]
python = "tests.fakes.tools:block"
timeout = 0.5

[[agents]]
name = "bare"
version = "1.0.0"
model = "openai-chat:gpt-test"
base_url = "{model}"
api_key = "sk-bare"
history = ["full"]
stream = ["delta"]
client_tools = false
images = []

[[agents]]
name = "mute"
version = "1.0.0"
model = "openai-chat:gpt-test"
base_url = "{model}"
api_key = "sk-mute"
history = []
stream = ["none"]
client_tools = false
images = ["http"]

[[agents]]
name = "forgetful"
version = "1.0.0"
model = "openai-chat:gpt-test"
base_url = "{model}"
api_key = "sk-forgetful"
instructions = "Keep it short."
context_tokens = 600
{full}
[[agents.tools]]
python = "tests.fakes.tools:verbose"

[[agents]]
name = "climber"
version = "1.0.0"
model = "openai-chat:gpt-test"
base_url = "{model}"
api_key = "sk-climber"
max_steps = 3
{full}
[[agents.tools]]
python = "tests.fakes.tools:tide_table"

[[agents]]
name = "mate"
title = "First Mate"
version = "1.0.0"
model = "openai-chat:{{model}}"
base_url = "{model}"
api_key = "sk-mate"
{full}
[[agents.options]]
type = "select"
name = "model"
options = ["gpt-test", "gpt-other"]
default = "gpt-test"
[[agents.tools]]
builtin = "ask_user"
[[agents.tools]]
python = "tests.fakes.tools:order_rope"
confirm_result = true

[[agents]]
name = "unreachable"
version = "1.0.0"
model = "openai-chat:gpt-test"
base_url = "http://127.0.0.1:9/v1"
api_key = "sk-unreachable"
{full}

[[agents]]
name = "coder"
version = "1.0.0"
model = "openai-chat:gpt-test"
base_url = "{model}"
api_key = "sk-coder"
{full}
[[agents.tools]]
builtin = "read_file"
[[agents.tools]]
builtin = "write_file"
[[agents.tools]]
builtin = "edit_file"
[[agents.tools]]
builtin = "list_files"
[[agents.tools]]
builtin = "search_files"
[[agents.access]]
paths = ["/vault/sealed"]
decision = "deny"
applies_to = ["agent", "client"]
[[agents.access]]
paths = ["/vault"]
decision = "ask"
applies_to = ["agent", "client"]
"""


def write(path: Path, model_url: str, *, without: str | None = None, replaced: Mapping[str, str] | None = None) -> Path:
    """Write the file. ``without`` omits one agent and ``replaced`` replaces texts, for tests that change the file."""
    agents = FILE.format(model=model_url, full=FULL.strip(), default_key=DEFAULT_KEY, header=HEADER_SECRET).split("[[agents]]\n")
    kept = [agent for agent in agents if without is None or f'name = "{without}"\n' not in agent.split("[[", 1)[0]]
    text = "[[agents]]\n".join(kept)
    for old, new in (replaced or {}).items():
        text = text.replace(old, new)
    path.write_text(text)
    return path
