"""From what servers list to the tools of an agent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from agents_app import tool_lists
from agents_app.mcp import listing
from agents_app.mcp.listing import Listed
from agents_app.spec import AgentSpec, McpSpec, ToolSpec

FILES, MAIL = McpSpec("files", "https://f/mcp"), McpSpec("mail", "https://m/mcp")


def tool(name: str, **fields: Any) -> Listed:
    made = listing.listed(name, fields.get("title"), fields.get("description"), fields.get("parameters", {}), idempotent=False)
    assert made is not None
    return made


def names(*servers: McpSpec, own: Sequence[str] = (), **lists: Sequence[str]) -> dict[str, str]:
    """By the agent's name for it: server and the server's name."""
    spec = AgentSpec("a", "demo:", mcp=servers, tools=tuple(ToolSpec(each, "builtin:calculator") for each in own))
    made = listing.tools(spec, {server: [tool(each) for each in found] for server, found in lists.items()})
    return {each.name: each.source.removeprefix("mcp:") for each in made}


def test_a_tool_is_called_what_its_server_calls_it() -> None:
    assert names(FILES, files=["read", "write"]) == {"read": "files:read", "write": "files:write"}


def test_a_name_that_the_agent_has_gets_the_servers_in_front() -> None:
    assert names(FILES, own=["read"], files=["read", "write"]) == {"files_read": "files:read", "write": "files:write"}


def test_two_servers_with_one_name_both_give_their_own() -> None:
    assert names(FILES, MAIL, files=["search", "read"], mail=["search"]) == {
        "files_search": "files:search",
        "read": "files:read",
        "mail_search": "mail:search",
    }


def test_even_the_longer_name_may_be_taken() -> None:
    found = names(FILES, own=["read", "files_read"], files=["read"])
    assert list(found.values()) == ["files:read"]
    assert re.fullmatch(r"files_read_[0-9a-f]{8}", next(iter(found)))


def test_names_that_no_model_could_call_are_mended_and_led_back() -> None:
    long = "x" * 100
    found = names(FILES, files=["odd.name/with spaces", "a:b", long, long + "y", "ü"])
    assert list(found.values()) == [f"files:{each}" for each in ("odd.name/with spaces", "a:b", long, long + "y", "ü")]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in found)
    assert list(found)[:2] == ["odd_name_with_spaces", "a_b"]
    assert listing.of_source("mcp:files:a:b") == ("files", "a:b")


def test_names_that_become_one_by_mending_stay_two() -> None:
    found = names(FILES, files=["a.b", "a b"])
    assert sorted(found.values()) == ["files:a b", "files:a.b"]


def test_patterns_say_which_tools_an_agent_takes() -> None:
    server = McpSpec("files", "https://f/mcp", include=("read_*", "list"), exclude=("*_secret", "write_*"))
    found = names(server, files=["read_file", "read_secret", "write_file", "list", "listing", "READ_FILE"])
    assert list(found) == ["read_file", "list"]


def test_what_is_said_of_a_server_holds_for_its_tools() -> None:
    server = McpSpec("files", "https://f/mcp", expose=False, timeout=7)
    (made,) = listing.tools(AgentSpec("a", "demo:", mcp=(server,)), {"files": [tool("read", title=" Read\nit ")]})
    assert (made.expose, made.timeout, made.title, made.confirm_result) == (False, 7, "Read it", False)


def test_what_cannot_be_stored_is_mended_or_left_out() -> None:
    made = tool("read", description="a\x00b\ud800", parameters={"type": "object", "x\x00": "y\x00"})
    assert made.description == "a\ufffdb\ufffd"
    assert made.parameters == {"type": "object", "x\ufffd": "y\ufffd"}
    deep: Any = {}
    for _ in range(200):
        deep = {"properties": deep}
    assert listing.listed("read", None, None, deep, idempotent=False) is None
    assert listing.listed("read", None, None, {"x": "y" * 200_000}, idempotent=False) is None
    assert listing.listed("re\x00ad", None, None, {}, idempotent=False) is None
    assert listing.listed("", None, None, {}, idempotent=False) is None


def test_a_server_that_lists_a_tool_twice_or_without_end_gives_no_more_than_it_should() -> None:
    assert names(FILES, files=["read", "read"]) == {"read": "files:read"}
    assert len(names(FILES, files=[f"t{number}" for number in range(2000)])) == listing.MOST_TOOLS


def test_servers_without_a_tool_in_the_definition_are_those_nobody_has_seen() -> None:
    spec = AgentSpec("a", "demo:", mcp=(FILES, MAIL), tools=(ToolSpec("read", "mcp:files:read"),))
    assert listing.unlisted(spec) == (MAIL,)


def test_all_tools_of_an_agent_are_not_larger_than_a_list_may_be() -> None:
    """The agent's own are counted and never left out; the servers' are taken in their order while there is room."""
    large = [tool(f"t{number}", parameters={"x": "y" * 90_000}) for number in range(510)]
    small = [tool("small")]
    own = ToolSpec("own", "python:a:b", parameters={"x": "y" * 90_000})
    spec = AgentSpec("a", "demo:", mcp=(FILES, MAIL), tools=(own,))
    lists = {"files": large, "mail": small}
    made = listing.tools(spec, lists)
    assert [each.name for each in made] == ["t0", "t1", "t2", "t3", "small"]
    assert listing.left_out(spec, lists) == {"files": 506}
    assert sum(tool_lists.size(t.name, t.title, t.description, t.parameters) for t in (own, *made)) <= tool_lists.most_bytes()


def test_what_the_patterns_leave_out_is_not_counted_as_left_out() -> None:
    spec = AgentSpec("a", "demo:", mcp=(McpSpec("files", "https://f/mcp", include=("t0",)),))
    assert listing.left_out(spec, {"files": [tool(f"t{number}", parameters={"x": "y" * 90_000}) for number in range(50)]}) == {}
    many = {"files": [tool(f"t{number}") for number in range(2000)]}
    assert listing.left_out(AgentSpec("a", "demo:", mcp=(FILES,)), many) == {"files": 2000 - listing.MOST_TOOLS}
