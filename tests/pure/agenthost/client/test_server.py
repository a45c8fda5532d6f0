"""URLs, keys and refusals in the chat."""

from __future__ import annotations

import json

import pytest

from agenthost.client import errors
from agenthost.client.errors import UsageError
from agenthost.client.server import Server, base_url, check_key, is_unencrypted


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("http://127.0.0.1:8000/aap/v3", "http://127.0.0.1:8000/aap/v3"),
        ("https://agents.example", "https://agents.example/aap/v3"),
        ("https://agents.example/", "https://agents.example/aap/v3"),
        ("https://agents.example/other/path/", "https://agents.example/other/path"),
        ("localhost:8000", "http://localhost:8000/aap/v3"),
        ("127.0.0.1:8731", "http://127.0.0.1:8731/aap/v3"),
        ("[::1]:8000", "http://[::1]:8000/aap/v3"),
        ("agents.example", "https://agents.example/aap/v3"),
        (" agents.example/v3 ", "https://agents.example/v3"),
    ],
)
def test_short_forms_of_the_url_are_accepted(written: str, url: str) -> None:
    assert base_url(written) == url


@pytest.mark.parametrize(
    "written",
    ["", "ftp://there", "http://", "http://there:port", "http://there:99999", "https://a:b@there", "http://x/?a=b", "http://[::"],
)
def test_invalid_urls_are_refused(written: str) -> None:
    with pytest.raises(UsageError):
        base_url(written)


def test_unencrypted_connections_are_recognized() -> None:
    assert is_unencrypted("http://agents.example/aap/v3")
    assert not is_unencrypted("https://agents.example/aap/v3")
    assert not is_unencrypted("http://127.0.0.1:8000/aap/v3")
    assert not is_unencrypted("http://[::1]:8000/aap/v3")


@pytest.mark.parametrize("written", ["", "two words", "line\nbreak", "schlüssel", "ctrl\x07"])
def test_an_invalid_key_is_refused_without_quoting_it(written: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_key(written)
    assert not written or written not in str(refused.value)


def test_the_key_is_not_in_the_repr_of_a_server() -> None:
    assert check_key(" ah_secret\n") == "ah_secret"
    assert "ah_secret" not in repr(Server("http://x/v3", "ah_secret", on_wait=lambda _seconds, _refused: None, retry_seconds=1))


def test_a_refusal_shows_every_error() -> None:
    body = {"detail": "Not so.", "errors": [{"pointer": "/a", "detail": "is wrong"}, {"pointer": "", "detail": "is worse"}, 5]}
    refused = errors.refusal(422, "Unprocessable", {}, json.dumps(body).encode())
    assert str(refused) == "The server refused this (422): Not so.\n  /a: is wrong\n  (whole request): is worse"
    assert isinstance(refused, errors.Invalid)


@pytest.mark.parametrize(
    ("body", "detail"), [(b"", "Bad Gateway"), (b"<html>", "Bad Gateway"), (b'{"title":"Busy"}', "Busy"), (b"[1]", "Bad Gateway")]
)
def test_a_refusal_that_is_not_a_problem_document_is_shown_too(body: bytes, detail: str) -> None:
    refused = errors.refusal(502, "Bad Gateway", {"X-Request-Id": "req_1"}, body)
    assert (
        str(refused) == f"The server refused this (502): {detail}\n  The reason is in the server's log, under request id req_1."
    )
    assert isinstance(refused, errors.ServerError)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("7", 7.0), ("0", 0.0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0), ("-1", None), (None, None)],
)
def test_retry_after_is_read_in_seconds(written: str | None, seconds: float | None) -> None:
    headers = {} if written is None else {"Retry-After": written}
    assert errors.refusal(429, "", headers, b"").retry_after == seconds
