"""A session's state and its entry in lists, in AHP 0.9 and 1.0."""

from __future__ import annotations

from typing import Any

from agents_app.spec import AgentSpec
from sessions_app.ahp.versions.v0_1.projection import agent_settings
from sessions_app.ahp.versions.v0_1.projection import values as v0_1
from sessions_app.ahp.versions.v0_1.projection.sessions import status_of
from sessions_app.ahp.versions.v0_9.face import Face
from sessions_app.ahp.versions.v0_9.projection import chats, values
from sessions_app.ahp.versions.v0_9.spelling import chat_uri, session_uri
from sessions_app.core.base import times
from sessions_app.core.sessions.entries import SessionEntry
from sessions_app.core.sessions.state import SessionState
from sessions_app.core.tenancy import agents


def uri_of(entry: SessionEntry, face: Face) -> str:
    return session_uri(entry.uri, entry.family, entry.agent, entry.public_id, by_provider=face.by_provider)


def summary_of(entry: SessionEntry, face: Face) -> dict[str, Any]:
    uri = uri_of(entry, face)
    shown: dict[str, Any] = {
        "resource": uri,
        **_metadata(entry),
        "activity": entry.activity or "",
        "createdAt": times.text_of(entry.created_at),
        "modifiedAt": entry.chat_modified_at,
    }
    if face.family == "1":
        chat = chats.summary_of(entry, uri, face)
        shown["chats"] = [{name: chat[name] for name in ("resource", "title", "status")}]
        shown["defaultChat"] = chat["resource"]
    return shown


def _metadata(entry: SessionEntry) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "provider": entry.agent,
        "title": entry.title,
        "status": status_of(entry.state, read=entry.read, archived=entry.archived),
    }
    if entry.directory is not None:
        shown["workingDirectories"] = [entry.directory]
    return shown


def state_of(state: SessionState, spec: AgentSpec | None, face: Face) -> dict[str, Any]:
    """``spec`` None: the operator has removed the agent; the session can still be read."""
    uri = uri_of(state.summary, face)
    shown: dict[str, Any] = {
        **_metadata(state.summary),
        "lifecycle": "ready",
        "activeClients": [values.active_client(each) for each in state.clients],
        "chats": [chats.summary_of(state.summary, uri, face)],
        "defaultChat": chat_uri(uri),
        "serverTools": [v0_1.tool_definition(tool) for tool in state.server_tools],
        "customizations": [values.customization(each) for each in state.customizations],
    }
    if spec is not None:
        options = {name: value for name, value in state.options.items() if name != agents.MODEL or not agents.has_models(spec)}
        shown["config"] = {
            "schema": agent_settings.config_schema(spec),
            "values": v0_1.config_values(options, state.approval or None),
        }
    if state.attention:
        shown["inputNeeded"] = [values.attention(entry, uri, chat_uri(uri)) for entry in state.attention]
    return shown
