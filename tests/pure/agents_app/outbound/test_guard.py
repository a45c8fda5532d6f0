"""The guard: every address of a name is looked at, and the look-up happens once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import ip_address

import pytest

from agents_app.outbound import guard
from agents_app.outbound.addresses import Address
from agents_app.outbound.guard import NOT_PUBLIC, UNKNOWN, Guard
from agents_app.outbound.policy import Policy
from agents_app.outbound.target import AddressRefused, read


class Names:
    """A name server of our own: each look-up of a name takes the next of its answers."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self._answers = {name.replace("_", "."): list(given) for name, given in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, name: str, port: int) -> Sequence[Address]:
        self.asked.append(name)
        if name not in self._answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        given = self._answers[name]
        return [ip_address(text) for text in (given.pop(0) if len(given) > 1 else given[0])]


def refusal(url: str, names: Names, policy: Policy | None = None) -> str:
    with pytest.raises(AddressRefused) as caught:
        asyncio.run(Guard(policy or Policy(), names).admit(read(url)))
    return caught.value.reason


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["93.184.216.34", "127.0.0.1"],
        ["127.0.0.1", "93.184.216.34"],
        ["93.184.216.34", "2606:4700::1111", "10.0.0.1"],
        ["2606:4700::1111", "fd00::1"],
        ["93.184.216.34", "::ffff:127.0.0.1"],
        ["93.184.216.34"] * 40 + ["192.168.0.1"],
        ["169.254.169.254"],
        ["0.0.0.0"],
        ["fe80::1%lo"],
        [],
    ],
)
def test_a_name_with_even_one_address_that_is_not_public_is_refused(addresses: list[str]) -> None:
    assert refusal("http://example.org/", Names(example_org=[addresses])) == UNKNOWN


def test_nobody_learns_whether_a_name_is_unknown_or_leads_inside() -> None:
    names = Names(inside_example_org=[["10.0.0.1"]], half_example_org=[["10.0.0.1", "93.184.216.34"]])
    said = {
        refusal(f"https://{host}/", names)
        for host in ("inside.example.org", "half.example.org", "nowhere.example.org", "a.local")
    }
    assert said == {UNKNOWN}
    assert not any(character.isdigit() for character in UNKNOWN)


async def test_a_public_name_is_admitted_with_the_addresses_it_had() -> None:
    names = Names(example_org=[["93.184.216.34", "2606:4700::1111"], ["127.0.0.1"]])
    admitted = await Guard(Policy(), names).admit(read("https://example.org/"))
    assert [str(address) for address in admitted.addresses] == ["93.184.216.34", "2606:4700::1111"]
    assert names.asked == ["example.org"]


async def test_of_many_addresses_some_of_both_families_are_tried() -> None:
    many = ["2606:4700::1"] * 3 + [f"2606:4700::{number}" for number in range(1, 30)] + ["1.1.1.1", "1.1.1.2"]
    admitted = await Guard(Policy(), Names(example_org=[many])).admit(read("https://example.org/"))
    assert [str(address) for address in admitted.addresses] == [
        "2606:4700::1", "2606:4700::2", "2606:4700::3", "1.1.1.1", "1.1.1.2",
    ]  # fmt: skip


def test_names_of_one_house_and_addresses_are_never_looked_up() -> None:
    names = Names()
    assert refusal("http://localhost/", names) == UNKNOWN
    assert refusal("http://metadata.google.internal/", names) == UNKNOWN
    assert refusal("http://127.0.0.1/", names) == NOT_PUBLIC
    assert refusal("http://[::1]/", names) == NOT_PUBLIC
    assert "port 22" in refusal("http://example.org:22/", names)
    assert "port 6379" in refusal("http://93.184.216.34:6379/", names)
    assert names.asked == []


def test_an_allowed_host_may_lead_inside_and_others_may_not() -> None:
    names = Names(wiki_example=[["10.0.0.1"]], evil_example=[["10.0.0.1"]], wiki_meta=[["169.254.169.254"]])
    policy = Policy.of(["wiki.example", "wiki.meta"], [80])
    admitted = asyncio.run(Guard(policy, names).admit(read("http://wiki.example/")))
    assert [str(address) for address in admitted.addresses] == ["10.0.0.1"]
    assert refusal("http://evil.example/", names, policy) == UNKNOWN
    assert refusal("http://wiki.meta/", names, policy) == UNKNOWN
    assert refusal("http://10.0.0.1/", names, policy) == NOT_PUBLIC


@pytest.mark.parametrize(
    "error",
    [socket.gaierror(-2, "x"), UnicodeError("x"), TimeoutError("x"), OSError("x"), ValueError("x")],
    ids=lambda error: type(error).__name__,
)
async def test_a_look_up_that_fails_is_an_unknown_host(error: Exception) -> None:
    async def failing(name: str, port: int) -> Sequence[Address]:
        raise error

    with pytest.raises(AddressRefused) as caught:
        await Guard(Policy(), failing).admit(read("http://example.org/"))
    assert caught.value.reason == UNKNOWN
    assert caught.value.__suppress_context__


async def test_a_look_up_that_never_ends_is_an_unknown_host(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(name: str, port: int) -> Sequence[Address]:
        await asyncio.Event().wait()
        return ()

    monkeypatch.setattr(guard, "LOOKUP_SECONDS", 0.05)
    with pytest.raises(AddressRefused, match="unknown"):
        await Guard(Policy(), silent).admit(read("http://example.org/"))


async def test_the_system_is_asked_for_all_addresses_of_a_name() -> None:
    found = {str(address) for address in await guard.look_up("localhost", 80)}
    assert "127.0.0.1" in found or "::1" in found
