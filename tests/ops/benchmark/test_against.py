"""Other servers under the benchmark's load."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ops.benchmark import against, load
from ops.benchmark.against import AgainstError, Peer, PeerServer
from ops.benchmark.installation import model_server
from ops.benchmark.load import Address, Chat
from ops.benchmark.paced_model import model


@pytest.mark.parametrize(
    ("url", "address", "is_aap"),
    [
        ("http://127.0.0.1:9000", Address("127.0.0.1", 9000, "/v1"), False),
        ("http://127.0.0.1:9000/v1/chat/completions", Address("127.0.0.1", 9000, "/v1"), False),
        ("https://models.example/api/v1/", Address("models.example", 443, "/api/v1", tls=True), False),
        ("http://agents.example/aap", Address("agents.example", 80, "/aap/v3"), True),
        ("https://agents.example:8443/aap/v3", Address("agents.example", 8443, "/aap/v3", tls=True), True),
    ],
)
def test_a_url_names_the_server_and_its_protocol(url: str, address: Address, is_aap: bool) -> None:
    assert against.peer(url, None) == Peer(address, is_aap)


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:9000", "ftp://host/", "http://", "http://host:port/", "http://sk-secret@host/v1", "http://host/v1?key=sk-secret"],
)
def test_a_url_that_names_no_server_or_has_a_key_is_refused_without_the_key(url: str) -> None:
    with pytest.raises(AgainstError) as refused:
        against.peer(url, None)
    assert "sk-secret" not in str(refused.value)


def test_a_key_is_read_from_a_file_or_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(against.KEY_VARIABLE, raising=False)
    assert against.key(None) == ""
    monkeypatch.setenv(against.KEY_VARIABLE, "from the environment")
    assert against.key(None) == "from the environment"
    (tmp_path / "key").write_text("from a file\n")
    assert against.key(tmp_path / "key") == "from a file"
    with pytest.raises(AgainstError, match="No such file"):
        against.key(tmp_path / "missing")


async def test_a_server_with_a_model_of_its_own_may_send_as_many_tokens_as_it_likes() -> None:
    with model_server() as port:
        target = against.peer(f"http://127.0.0.1:{port}", model(3, 0)).target("a key")
        lines = await target.lines(2, model(10, 50))
        watched = await load.crowd(lines, 2, 0.0)
        load.close(lines)
    assert [each.tokens for each in watched] == [3, 3, 3, 3]
    target.check(watched, 10)


def test_a_server_whose_processes_are_not_named_has_no_costs() -> None:
    target = Chat(Address("127.0.0.1", 1))
    assert PeerServer(target, []).parts() == {}
    assert PeerServer(target, []).memory_mib() == 0
    assert PeerServer(target, [os.getpid()]).memory_mib() > 1
