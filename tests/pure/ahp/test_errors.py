"""Domain errors as error codes of commands and as reasons of rejections."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from django.db import OperationalError

from sessions_app.ahp.transport import jsonrpc
from sessions_app.ahp.transport.failures import error_for
from sessions_app.ahp.transport.jsonrpc import RPCError
from sessions_app.ahp.versions import served
from sessions_app.ahp.versions.v0_1 import errors as face
from sessions_app.ahp.versions.v0_1.dispatch import reasons
from sessions_app.ahp.versions.v0_1.wire.errors import Code
from sessions_app.ahp.versions.v0_9 import errors as newer
from sessions_app.ahp.versions.v0_9.wire.errors import Code as NewerCode
from sessions_app.core.base import errors
from tests.pure.aap.test_problems import read_only


def _all(base: type[errors.DomainError]) -> set[type[errors.DomainError]]:
    below = set(base.__subclasses__())
    return below.union(*(_all(each) for each in below)) if below else below


@pytest.mark.rule("R32")
def test_every_domain_error_has_a_code_or_is_never_raised_by_commands() -> None:
    ours = {error for error in _all(errors.DomainError) if error.__module__.startswith("sessions_app.")}
    assert ours == set(face.TABLE) | face.NOT_IN_COMMANDS
    assert not set(face.TABLE) & face.NOT_IN_COMMANDS


class _Something:
    """An error of any class, for the entries of a table that look only at texts."""

    def __getattr__(self, _name: str) -> str:
        return "something"


def _codes(table: Mapping[type[errors.DomainError], Callable[[Any], RPCError]]) -> dict[type[errors.DomainError], int]:
    made = {errors.InvalidInput: errors.InvalidInput([]), errors.AccessNeeded: errors.AccessNeeded("file:///a", ["read"])}
    return {error: int(answer(made.get(error, _Something())).code) for error, answer in table.items()}


@pytest.mark.rule("V420")
def test_newer_versions_have_one_table_of_codes_that_differs_from_0_1_where_the_protocol_does() -> None:
    added = {errors.FileChanged: NewerCode.CONFLICT, errors.WatchesOff: jsonrpc.METHOD_NOT_FOUND}
    changed = {errors.ContentNotFound: (-32006, -32008), errors.WorkspacesOff: (-32009, -32601)}
    older, newer_ones = _codes(face.TABLE), _codes(newer.TABLE)
    assert set(newer_ones) - set(older) == set(added) <= face.NOT_IN_COMMANDS
    assert set(older) <= set(newer_ones)
    assert {error: newer_ones[error] for error in added} == added
    assert {error: (code, newer_ones[error]) for error, code in older.items() if newer_ones[error] != code} == changed
    of_json_rpc = {jsonrpc.INVALID_REQUEST, jsonrpc.METHOD_NOT_FOUND, jsonrpc.INVALID_PARAMS, jsonrpc.INTERNAL_ERROR}
    assert set(newer_ones.values()) <= {int(code) for code in NewerCode} | of_json_rpc
    assert all(version.errors is newer.TABLE for version in served().all if version.name != "0.1")


@pytest.mark.rule("R83")
def test_every_domain_error_of_a_dispatch_has_a_reason() -> None:
    dealt_with = {errors.SessionNotFound, errors.TerminalNotFound, errors.NotReady, errors.FilesAway, errors.AnswersFull}
    assert set(reasons.TABLE) | dealt_with == set(face.TABLE)


def test_a_subclass_without_an_entry_is_answered_like_its_base_class() -> None:
    class NoSuchTurn(errors.TurnUnknown):
        """A kind of unknown turn."""

    error, base = error_for(NoSuchTurn(), face.TABLE), error_for(errors.TurnUnknown(), face.TABLE)
    assert (error.code, error.message) == (base.code, base.message)
    assert reasons.of(NoSuchTurn()) == reasons.of(errors.TurnUnknown())
    # A class with an entry of its own uses that one, not the one of its base class.
    assert error_for(errors.AnswersFull(), face.TABLE).message != error_for(errors.NotReady(), face.TABLE).message


@pytest.mark.rule("R28")
def test_unexpected_exceptions_are_logged_and_answered_with_a_reference(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        error = error_for(ValueError("select secret from /srv"), face.TABLE)
    assert error.code == jsonrpc.INTERNAL_ERROR
    assert "secret" not in error.message
    assert "select secret" in caplog.text
    reference = error.message.split()[-1].rstrip(".")
    assert reference in caplog.text


@pytest.mark.parametrize("error", [OperationalError("connection to 10.0.0.1 refused"), read_only()])
def test_an_unavailable_database_is_answered_with_try_again(error: Exception) -> None:
    error = error_for(error, face.TABLE)
    assert error.code == jsonrpc.INTERNAL_ERROR
    assert "10.0" not in error.message
    assert "right now" in error.message


@pytest.mark.rule("R27", "R29")
def test_faults_of_an_input_name_their_paths() -> None:
    fault = errors.Fault(("tools", 0, "name"), "is taken")
    error = error_for(errors.InvalidInput([fault]), face.TABLE)
    assert (error.code, error.message) == (-32602, "tools.0.name: is taken")
    assert reasons.of(errors.InvalidInput([fault])) == "tools.0.name: is taken"


@pytest.mark.parametrize(
    ("code", "params", "subject"),
    [
        (Code.SESSION_NOT_FOUND, {"session": "echo:/gone"}, "echo:/gone"),
        (Code.SESSION_NOT_FOUND, {"resource": "echo:/gone"}, "echo:/gone"),
        (Code.SESSION_NOT_FOUND, {"session": "echo:/new", "fork": {"session": "echo:/gone", "turnId": "t"}}, "echo:/gone"),
        (Code.SESSION_ALREADY_EXISTS, {"session": "echo:/taken", "provider": "echo"}, "echo:/taken"),
        (Code.PROVIDER_NOT_FOUND, {"session": "ecko:/new", "provider": "ecko"}, "ecko"),
        (Code.PROVIDER_NOT_FOUND, {"session": "echo:/of-an-agent-that-is-gone"}, None),
        (Code.NOT_FOUND, {"uri": "file:///gone"}, "file:///gone"),
        # It may be the terminal or the directory.
        (Code.NOT_FOUND, {"terminal": "t:/1", "cwd": "file:///gone"}, None),
        # It may be the source or the destination's directory.
        (Code.NOT_FOUND, {"source": "file:///a", "destination": "file:///b"}, None),
        (Code.ALREADY_EXISTS, {"source": "file:///a", "destination": "file:///b"}, "file:///b"),
        (jsonrpc.INVALID_PARAMS, {"session": "echo:/1"}, None),
        (Code.SESSION_NOT_FOUND, {"session": 7}, None),
    ],
)
def test_an_error_names_the_value_of_the_request_that_it_is_about(code: int, params: dict[str, Any], subject: str | None) -> None:
    assert face.subject(code, params) == subject


def test_long_names_are_cut_in_messages() -> None:
    assert jsonrpc.method_not_found("m" * 1000).message == f'There is no such method: "{"m" * 200}…".'
    assert jsonrpc.method_not_found("fly").message == 'There is no such method: "fly".'
