"""Hosts with the OpenAI chat completions API, by provider name: address, key variable and differences.

Addresses and names of keys are the vendors' own. A host without an address has no usual one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from agents_app.providers import names


@dataclass(frozen=True, slots=True)
class Dialect:
    """The differences of a host's chat completions.

    ``thinking``: the field in which its own thinking is sent back, or Mistral's parts; None: it is not sent back.
    ``thinking_expected``: the host refuses calls without that field. ``call_id``: converts ids of calls. ``strict_roles``:
    a user message may not follow a tool message, and system messages are allowed at the start only. ``usage_option``:
    request usage explicitly. ``max_tokens``: the parameter for the longest answer.
    """

    thinking: Literal["reasoning_content", "reasoning", "parts"] | None = None
    thinking_expected: bool = False
    call_id: Callable[[str], str] | None = None
    strict_roles: bool = False
    usage_option: bool = True
    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"


PLAIN = Dialect()
OPENAI = Dialect(max_tokens="max_completion_tokens")
"""At OpenAI itself; compatible servers know the older name only."""


@dataclass(frozen=True, slots=True)
class Host:
    base_url: str | None
    key: str | None = None
    """The environment variable for the key, as its vendor names it."""
    dialect: Dialect = PLAIN


_REASONS = Dialect(thinking="reasoning_content")

HOSTS: Mapping[str, Host] = {
    "openai-chat": Host("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "alibaba": Host("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
    "azure": Host(None, "AZURE_OPENAI_API_KEY", OPENAI),
    "cerebras": Host("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "cohere": Host("https://api.cohere.ai/compatibility/v1", "CO_API_KEY"),
    "deepseek": Host(
        "https://api.deepseek.com", "DEEPSEEK_API_KEY", Dialect(thinking="reasoning_content", thinking_expected=True)
    ),
    "fireworks": Host("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY", _REASONS),
    "github": Host("https://models.github.ai/inference", "GITHUB_API_KEY"),
    "groq": Host("https://api.groq.com/openai/v1", "GROQ_API_KEY", Dialect(thinking="reasoning")),
    "heroku": Host("https://us.inference.heroku.com/v1", "HEROKU_INFERENCE_KEY"),
    "huggingface": Host("https://router.huggingface.co/v1", "HF_TOKEN"),
    "litellm": Host(None, "LITELLM_API_KEY"),
    "mistral": Host(
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        Dialect(thinking="parts", call_id=names.call_id_of_nine, strict_roles=True, usage_option=False),
    ),
    "moonshotai": Host(
        "https://api.moonshot.ai/v1", "MOONSHOTAI_API_KEY", Dialect(thinking="reasoning_content", thinking_expected=True)
    ),
    "nebius": Host("https://api.studio.nebius.com/v1", "NEBIUS_API_KEY"),
    "ollama": Host("http://127.0.0.1:11434/v1", "OLLAMA_API_KEY", Dialect(thinking="reasoning")),
    "openrouter": Host("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "ovhcloud": Host("https://oai.endpoints.kepler.ai.cloud.ovh.net/v1", "OVHCLOUD_API_KEY"),
    "sambanova": Host("https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY"),
    "together": Host("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "vercel": Host("https://ai-gateway.vercel.sh/v1", "VERCEL_AI_GATEWAY_API_KEY"),
    "vllm": Host(None, "VLLM_API_KEY"),
    "xai": Host("https://api.x.ai/v1", "XAI_API_KEY"),
    "zai": Host("https://api.z.ai/api/paas/v4", "ZAI_API_KEY", _REASONS),
}
