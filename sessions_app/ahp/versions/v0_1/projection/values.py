"""The core's values as actions and states of AHP 0.1 show them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sessions_app.core.records import tool_contents
from sessions_app.core.sessions.state import TurnView
from sessions_app.core.turns.call_options import OPTIONS

APPROVAL = "approval"
"""The name of the setting whether the server's tools ask before they run (R389)."""

CONTENT = "/content/"
"""In the URI of a session's content, between the session's URI and the content's name."""

MOST_INLINE = 64 * 1024
"""Characters of one block of a tool's result in the state; of a larger one clients get a reference (R156)."""
EXCERPT = 4 * 1024
"""Characters of a large text that are in the state all the same."""
MORE = "\n[this is the beginning; the next block refers to all of it]"

_ERRORS: Mapping[str, str] = {
    "provider_failed": "The model's provider failed.",
    "provider_key_refused": "The model's provider refused this session's own key.",
    "provider_limit_reached": "The model's provider reports that the limit of this session's own key is reached.",
    "provider_model_unknown": "The model's provider does not know the model that this session has chosen.",
    "too_many_steps": "The agent took more steps than it may.",
    "turn_too_large": "The turn has reached the size that a turn may have.",
    "interrupted": "The run was interrupted and could not be continued.",
    "limit": "The run took longer than its agent allows.",
    "quota_tokens": "The tokens of the day are used up.",
    "internal": "The host failed.",
}
_DATA_URL = re.compile(r"data:([^;,]*)[^,]*,(.*)", re.DOTALL)


def error_info(code: str) -> dict[str, Any]:
    return {"errorType": code, "message": _ERRORS.get(code, "The turn failed.")}


# --- messages ---


def user_message(message: Mapping[str, Any] | None) -> dict[str, Any]:
    """A user's message; ``None``: the turn began with answers instead of a message."""
    shown = message_as_sent(message)
    if "attachments" in shown:
        shown["attachments"] = [_attachment(each) for each in shown["attachments"]]
    return shown


def _attachment(attachment: dict[str, Any]) -> dict[str, Any]:
    """This version has no conversations as attachments: only their names are shown."""
    if attachment["type"] != "chat":
        return attachment
    members: dict[str, Any] = {"type": "simple"}
    return members | {name: attachment[name] for name in ("label", "range", "displayKind", "_meta") if name in attachment}


def stored_message(turn: TurnView) -> dict[str, Any] | None:
    """A turn's message as the event that started the turn has it."""
    if turn.attachments is not None:
        return {"text": turn.text, "attachments": turn.attachments}
    return None if turn.content is None else {"content": turn.content}


def message_as_sent(message: Mapping[str, Any] | None) -> dict[str, Any]:
    """With attachments of all types."""
    if message is None:
        return {"text": ""}
    if "text" in message:
        shown: dict[str, Any] = {"text": message["text"]}
        if message.get("attachments") is not None:
            shown["attachments"] = message["attachments"]
        return shown
    content = message["content"]
    if isinstance(content, str):
        return {"text": content}
    shown = {"text": "".join(block["text"] for block in content if block["type"] == "text")}
    images = [_image(block["url"], index) for index, block in enumerate(content, 1) if block["type"] == "image"]
    if images:
        shown["attachments"] = images
    return shown


def _image(url: str, index: int) -> dict[str, Any]:
    label = f"image {index}"
    data = _DATA_URL.fullmatch(url)
    if data is None:
        return {"type": "resource", "label": label, "displayKind": "image", "uri": url}
    return {
        "type": "embeddedResource",
        "label": label,
        "displayKind": "image",
        "contentType": data[1] or "image/*",
        "data": data[2],
    }


def pending_message(id_: str, message: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": id_, "userMessage": user_message(message)}


# --- tools ---


def tool_definition(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool of the host or of a client: ``{name, title?, description?, parameters?, result_schema?, annotations?, meta?}``."""
    shown: dict[str, Any] = {"name": tool["name"]}
    for ours, theirs in (
        ("title", "title"),
        ("description", "description"),
        ("parameters", "inputSchema"),
        ("result_schema", "outputSchema"),
        ("annotations", "annotations"),
        ("meta", "_meta"),
    ):
        value = tool.get(ours)
        if value is not None:
            shown[theirs] = _object_schema(value) if theirs.endswith("Schema") else value
    return shown


def _object_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    # The arguments of a tool are always an object, also where the schema does not say so.
    return {"type": "object", **schema}


def tool_from(definition: Mapping[str, Any]) -> dict[str, Any]:
    """A client's tool as the core stores it."""
    kept: dict[str, Any] = {"name": definition["name"]}
    for theirs, ours in (
        ("title", "title"),
        ("description", "description"),
        ("inputSchema", "parameters"),
        ("outputSchema", "result_schema"),
        ("annotations", "annotations"),
        ("_meta", "meta"),
    ):
        if theirs in definition:
            kept[ours] = definition[theirs]
    return kept


def active_client(entry: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {"clientId": entry["id"]}
    if entry.get("name") is not None:
        shown["displayName"] = entry["name"]
    shown["tools"] = [tool_definition(tool) for tool in entry["tools"]]
    if entry.get("customizations") is not None:
        shown["customizations"] = [_published(each) for each in entry["customizations"]]
    return shown


def _published(customization: Mapping[str, Any]) -> Mapping[str, Any]:
    """As its client published it. Newer versions call the name otherwise."""
    if "displayName" in customization:
        return {name: value for name, value in customization.items() if name != "id"}
    return {"uri": customization["uri"], "displayName": customization.get("name", "")}


def customization(entry: Mapping[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {"customization": _published(entry["customization"]), "enabled": entry["enabled"]}
    for ours, theirs in (("client", "clientId"), ("status", "status"), ("status_message", "statusMessage")):
        if entry.get(ours) is not None:
            shown[theirs] = entry[ours]
    return shown


# --- calls ---


def call_base(call: Mapping[str, Any]) -> dict[str, Any]:
    """The members that a call has in every state. ``call``: ``{call, name, title?, client?}``."""
    base = {"toolCallId": call["call"], "toolName": call["name"], "displayName": call.get("title") or call["name"]}
    if call.get("client"):
        base["toolClientId"] = call["client"]
    return base


def invocation(call: Mapping[str, Any]) -> str:
    return str(call.get("title") or call["name"])


def confirmation_of(call: Mapping[str, Any], edits: Sequence[Mapping[str, Any]], session: str) -> dict[str, Any]:
    """The members of a call that waits for a confirmation, besides its input. ``edits``: the changes that it would make."""
    options = [dict(option) for option in OPTIONS]
    shown: dict[str, Any] = {"confirmationTitle": f"Run {invocation(call)}?", "editable": True, "options": options}
    return {**shown, "edits": {"items": [file_edit(edit, session) for edit in edits]}} if edits else shown


def selected(option: str) -> dict[str, Any]:
    """The chosen option as a member of its call; empty if none was chosen."""
    found = next((dict(each) for each in OPTIONS if each["id"] == option), None)
    return {} if found is None else {"selectedOption": found}


def _blocks(content: Any, session: str, call: str) -> list[dict[str, Any]]:
    """The blocks of a result. Large ones are references, of texts after their beginning (R156)."""
    shown: list[dict[str, Any]] = []
    for index, block in enumerate(tool_contents.blocks_of(content)):
        is_large = len(block.get("text") or block.get("url") or "") > MOST_INLINE
        if block["type"] == "text":
            shown.append({"type": "text", "text": block["text"][:EXCERPT] + MORE if is_large else block["text"]})
            if is_large:
                shown.append(_reference(block, session, call, index))
            continue
        image = _image(block["url"], index + 1)
        if image["type"] == "resource":
            shown.append({"type": "resource", "uri": image["uri"]})
        elif is_large:
            shown.append(_reference(block, session, call, index))
        else:
            shown.append({"type": "embeddedResource", "data": image["data"], "contentType": image["contentType"]})
    return shown


def _reference(block: Mapping[str, Any], session: str, call: str, index: int) -> dict[str, Any]:
    data, kind = tool_contents.data_of(block)
    uri = f"{session}{CONTENT}{tool_contents.name_of(call, index)}"
    return {"type": "resource", "uri": uri, "sizeHint": len(data), "contentType": kind}


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def file_edit(edit: Mapping[str, Any], session: str) -> dict[str, Any]:
    """A changed file; ``session``: the URI below which the contents are (R339)."""
    shown: dict[str, Any] = {}
    for side in ("before", "after"):
        state = edit[side]
        if state is not None:
            content = {"uri": f"{session}{CONTENT}{state['content']}", "sizeHint": state["size"]}
            shown[side] = {"uri": edit["uri"], "content": content}
    return {**shown, "diff": {"added": edit["added"], "removed": edit["removed"]}}


def tool_result(
    content: Any,
    *,
    failed: bool,
    call: str = "",
    outcome: Mapping[str, Any] | None,
    edits: Sequence[Mapping[str, Any]] = (),
    session: str = "",
    terminals: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The result of a call. ``outcome``: as a client reported it; None for tools of the server.

    These may have ``edits``, and ``terminals`` as blocks.
    """
    if outcome is not None:
        result: dict[str, Any] = {"success": outcome["success"], "pastTenseMessage": outcome["message"]}
        for ours, theirs in (("content", "content"), ("structured", "structuredContent"), ("error", "error")):
            if outcome.get(ours) is not None:
                result[theirs] = outcome[ours]
        return result
    blocks = [
        *_blocks(content, session, call),
        *({"type": "fileEdit", **file_edit(edit, session)} for edit in edits),
        *map(dict, terminals),
    ]
    if failed:
        return {"success": False, "pastTenseMessage": "Failed", "content": blocks, "error": {"message": _text(content)[:EXCERPT]}}
    return {"success": True, "pastTenseMessage": "Done", "content": blocks}


def still_there(terminals: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The terminals of a call that continue after it. Those with a result are gone, and this version has no word for that."""
    return [block for block in terminals if "result" not in block]


def usage(tokens: Mapping[str, int], model: str | None = None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "inputTokens": tokens["input_tokens"],
        "outputTokens": tokens["output_tokens"],
        "cacheReadTokens": tokens["cache_read_tokens"],
    }
    return shown if model is None else {**shown, "model": model}


# --- settings ---


def model_selection(model: str, config: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"id": model} if not config else {"id": model, "config": dict(config)}


def config_values(options: Mapping[str, str], approval: str | None) -> dict[str, Any]:
    values: dict[str, Any] = dict(options)
    return values if approval is None else {**values, APPROVAL: approval}
