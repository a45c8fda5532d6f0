"""The core's values as actions and states of AHP 0.9 and 1.0 show them. What is the same in 0.1 comes from there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sessions_app.ahp.versions.v0_1.projection import calls
from sessions_app.ahp.versions.v0_1.projection import values as v0_1
from sessions_app.core.sessions.state import CallView

_WORDS: Mapping[str, str] = {"confirmation": "toolConfirmation", "execution": "toolClientExecution", "form": "chatInput"}


def message(stored: Mapping[str, Any] | None, model_of_turn: str | None = None) -> dict[str, Any]:
    """A message names its model itself, or shows that of its turn."""
    shown = {**v0_1.message_as_sent(stored), "origin": {"kind": "user"}}
    model = {"id": model_of_turn} if model_of_turn is not None else (stored or {}).get("model")
    return shown if model is None else {**shown, "model": model}


def pending_message(id_: str, stored: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": id_, "message": message(stored)}


def error_part(code: str, *, resumable: bool) -> dict[str, Any]:
    shown = {"kind": "error", "error": v0_1.error_info(code)}
    return {**shown, "resumable": True} if resumable else shown


def active_client(entry: Mapping[str, Any]) -> dict[str, Any]:
    shown = v0_1.active_client(entry)
    if entry.get("customizations") is not None:
        shown["customizations"] = [_plugin(each) for each in entry["customizations"]]
    return shown


def customization(entry: Mapping[str, Any]) -> dict[str, Any]:
    """``enablement`` is there if a client has switched it on or off, and not taken its decisions back (V526)."""
    shown = _plugin(entry["customization"])
    if entry.get("client") is not None:
        shown["clientId"] = entry["client"]
    if entry.get("enablement"):
        shown["enablement"] = entry["enablement"]
    elif not entry["enabled"]:
        shown["enablement"] = switched(enabled=False)
    return shown


def switched(*, enabled: bool) -> list[dict[str, Any]]:
    return [{"kind": "session", "enabled": enabled}]


def customization_id(published: Mapping[str, Any]) -> str:
    """Clients of 0.1 give none."""
    return str(published.get("id", published["uri"]))


def _plugin(published: Mapping[str, Any]) -> dict[str, Any]:
    """A client's plugin. One of 0.1 has a ``displayName``."""
    shown = {"type": "plugin", "id": customization_id(published), "uri": published["uri"]}
    shown["name"] = published.get("name", published.get("displayName", ""))
    return shown | {name: published[name] for name in ("icons", "version", "nonce") if name in published}


# --- calls ---


def call_base(call: Mapping[str, Any]) -> dict[str, Any]:
    """The members that a call has in every state. ``call``: ``{call, name, title?, client?}``."""
    base = {"toolCallId": call["call"], "toolName": call["name"], "displayName": call.get("title") or call["name"]}
    if call.get("client"):
        base["contributor"] = {"kind": "client", "clientId": call["client"]}
    return base


def call_of(call: CallView, session: str) -> dict[str, Any]:
    """A call in its state; ``session``: the URI below which its contents are."""
    return calls.call_of(call, session, call_base, message)


# --- what waits for a person ---


def attention_id(kind: str, turn: str, of: str) -> str:
    return f"{_WORDS[kind]}:{turn}:{of}"


def attention(entry: Mapping[str, Any], session: str, chat: str) -> dict[str, Any]:
    """An entry of ``inputNeeded``, as the event ``attention_opened`` has it."""
    kind, turn = entry["kind"], entry["turn"]
    if kind == "form":
        shown = {"id": attention_id(kind, turn, entry["form"]["id"]), "chat": chat, "kind": _WORDS[kind]}
        return {**shown, "request": dict(entry["form"])}
    call = CallView(**entry["call"])
    shown = {"id": attention_id(kind, turn, call.id), "chat": chat, "kind": _WORDS[kind], "turnId": turn}
    owner = {"clientId": call.client} if kind == "execution" else {}
    return {**shown, **owner, "toolCall": call_of(call, session)}


def usages(tokens: Sequence[int]) -> dict[str, Any]:
    return v0_1.usage(dict(zip(("input_tokens", "output_tokens", "cache_read_tokens"), tokens, strict=True)))
