"""The operator's commands, as a script and as a person sees them."""

from __future__ import annotations

import csv
import re
from datetime import date, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command, get_commands, load_command_class
from django.db import connection
from django.utils import timezone

from sessions_app.core import turns
from sessions_app.core.base.caller import Limits
from sessions_app.core.base.errors import NotAuthenticated
from sessions_app.core.tenancy import keys, tenants
from sessions_app.models import ApiKey, AuditRecord, ModelUse, Tenant

pytestmark = pytest.mark.django_db(transaction=True)

COMMANDS = (
    "create_tenant",
    "create_key",
    "revoke_key",
    "rotate_key",
    "list_keys",
    "show_usage",
    "export_usage",
    "export_workspace",
    "import_workspace",
    "list_workspaces",
)


def run(*words: str) -> tuple[str, str]:
    """What the command wrote to stdout and to stderr."""
    out, err = StringIO(), StringIO()
    call_command(*words, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


@pytest.fixture
def acme() -> Tenant:
    return tenants.create("acme")[0]


def issue(tenant: Tenant, **given: Any) -> keys.Issued:
    fields = {"name": "n", "scopes": ["*"], "expires_at": None, "allowed_agents": None, "actor": "t"}
    return keys.issue(tenant, **{**fields, **given})


def test_create_tenant_can_be_run_again_and_changes_nothing() -> None:
    first, said = run("create_tenant", "acme", "--title", "Acme Ltd.")
    assert first == "acme\n"
    assert "create_key acme" in said
    again, said = run("create_tenant", "acme", "--title", "Other")
    assert again == "acme\n"
    assert "keeps its title" in said
    assert Tenant.objects.get().title == "Acme Ltd."
    assert AuditRecord.objects.get(action="tenant_created").actor.startswith("shell")


def test_a_wrong_slug_is_refused_in_one_line() -> None:
    with pytest.raises(CommandError, match="a-z, 0-9"):
        run("create_tenant", "Not A Slug")


def test_the_key_is_the_last_line_of_stdout_and_nothing_else_is_there(acme: Tenant) -> None:
    out, said = run("create_key", "acme", "--name", "backend")
    raw = out.splitlines()[-1]
    assert out == raw + "\n"
    assert raw not in said
    assert "not shown again" in said
    caller = keys.authenticate(raw)
    assert (caller.tenant, caller.scopes, caller.agents) == (acme.pk, frozenset({"*"}), None)
    assert AuditRecord.objects.get(action="key_issued").actor.startswith("shell")


def test_a_key_gets_the_given_rights(acme: Tenant) -> None:
    out, _ = run(
        "create_key", "acme", "--name", "n", "--scopes", "meta:read, sessions:read", "--expires", "30d", "--agents", "demo,writer"
    )
    caller = keys.authenticate(out.strip())
    assert (caller.scopes, caller.agents) == (
        frozenset({"meta:read", "sessions:read"}),
        frozenset({"demo", "writer"}),
    )
    key = ApiKey.objects.get()
    assert key.expires_at is not None
    assert timedelta(days=29) < key.expires_at - timezone.now() <= timedelta(days=30)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nobody", "--name", "n"], "create_tenant nobody"),
        (["acme"], "--name"),
        (["acme", "--name", ""], "name"),
        (["acme", "--name", "n", "--scopes", "meta:read,fly"], "fly"),
        (["acme", "--name", "n", "--scopes", ""], "at least one scope"),
        (["acme", "--name", "n", "--expires", "soon"], "soon"),
        (["acme", "--name", "n", "--expires", "0d"], "future"),
        (["acme", "--name", "n", "--expires", "999999w"], "too long"),
        (["acme", "--name", "n", "--expires", "-1d"], "expires"),
        (["acme", "--name", "n", "--agents", ","], "at least one agent"),
    ],
)
def test_invalid_arguments_are_refused_and_issue_no_key(acme: Tenant, words: list[str], said: str) -> None:
    with pytest.raises(CommandError) as refusal:
        run("create_key", *words)
    assert said in str(refusal.value)
    assert not ApiKey.objects.exists()


def test_a_suspended_tenants_key_comes_with_a_warning(acme: Tenant) -> None:
    turns.suspend_tenant(acme, actor="t")
    _, said = run("create_key", "acme", "--name", "n")
    assert "suspended" in said


@pytest.mark.parametrize("by", ["prefix", "number", "whole"])
def test_a_key_is_revoked_by_its_prefix_its_number_or_the_whole_key(acme: Tenant, by: str) -> None:
    issued, other = issue(acme), issue(acme)
    reference = {"prefix": issued.key.prefix, "number": str(issued.key.pk), "whole": issued.raw}[by]
    _, said = run("revoke_key", reference)
    assert "Revoked" in said
    with pytest.raises(NotAuthenticated):
        keys.authenticate(issued.raw)
    assert keys.authenticate(other.raw).tenant == acme.pk
    assert "revoked already" in run("revoke_key", reference)[1]


@pytest.mark.parametrize("reference", ["ah_nothing", "4711", "9" * 40, "", "ah_nothing%", "²"])
def test_an_unknown_key_is_named_in_the_error(acme: Tenant, reference: str) -> None:
    issue(acme)
    for command in ("revoke_key", "rotate_key"):
        with pytest.raises(CommandError, match="no key"):
            run(command, reference)


def test_an_error_does_not_contain_a_whole_key(acme: Tenant) -> None:
    raw = "ah_" + "x" * 43
    with pytest.raises(CommandError) as refusal:
        run("revoke_key", raw)
    assert raw not in str(refusal.value)


def test_two_keys_with_the_same_prefix_need_the_number(acme: Tenant) -> None:
    first, second = issue(acme), issue(acme)
    ApiKey.objects.filter(pk=second.key.pk).update(prefix=first.key.prefix)
    with pytest.raises(CommandError, match="use the number"):
        run("revoke_key", first.key.prefix)


def test_a_rotated_key_and_its_successor_both_work_for_the_overlap(acme: Tenant) -> None:
    old = issue(acme, scopes=["meta:read"])
    out, said = run("rotate_key", old.key.prefix, "--overlap", "2h")
    assert keys.authenticate(out.strip()).scopes == keys.authenticate(old.raw).scopes == {"meta:read"}
    assert old.key.prefix in said
    run("rotate_key", out.strip(), "--overlap", "0s")
    with pytest.raises(NotAuthenticated):
        keys.authenticate(out.strip())


def test_a_revoked_key_is_not_rotated(acme: Tenant) -> None:
    old = issue(acme)
    turns.revoke_key(old.key, actor="t")
    with pytest.raises(CommandError, match="cannot be rotated"):
        run("rotate_key", old.key.prefix)


def test_keys_are_listed_without_the_keys(acme: Tenant) -> None:
    globex, _ = tenants.create("globex")
    mine, revoked, theirs = (
        issue(acme, name="mine", allowed_agents=["demo"]),
        issue(acme, name="over"),
        issue(globex, name="theirs"),
    )
    turns.revoke_key(revoked.key, actor="t")
    out, _ = run("list_keys", "acme")
    assert "mine" in out
    assert "demo" in out
    assert "over" not in out
    assert "theirs" not in out
    everything, _ = run("list_keys", "--all")
    assert all(name in everything for name in ("mine", "over", "revoked", "theirs"))
    assert not any(issued.raw in everything for issued in (mine, revoked, theirs))
    turns.suspend_tenant(acme, actor="t")
    assert "suspended" in run("list_keys", "acme")[0]


def test_an_empty_list_is_reported_on_stderr_only(acme: Tenant) -> None:
    out, said = run("list_keys")
    assert out == ""
    assert "no active keys" in said


def test_the_key_is_in_no_table_after_the_commands(acme: Tenant) -> None:
    raws = [run("create_key", "acme", "--name", "n")[0].strip()]
    raws.append(run("rotate_key", raws[0])[0].strip())
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'select * from "{table}"')
            stored = repr(cursor.fetchall())
            assert not any(raw[11:] in stored for raw in raws), table


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command: str) -> None:
    text = load_command_class(get_commands()[command], command).create_parser("manage.py", command).format_help()
    assert "examples:" in text
    assert f"manage.py {command} " in text or f"manage.py {command}\n" in text


def test_a_container_whose_user_has_no_name_can_use_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr("getpass.getuser", nameless)
    run("create_tenant", "acme")
    assert AuditRecord.objects.get().actor == "shell"


def test_show_usage_shows_usage_and_limits(acme: Tenant) -> None:
    key = issue(acme).key
    limits = Limits(sessions=3, request_bytes=1000)
    tenants.set_limits(acme, limits, session_retention_days=30, actor="t")
    keys.set_limits(key, Limits(tokens_per_day=5), actor="t")
    out, said = run("show_usage", "acme")
    table = [re.split(r" {2,}", line) for line in out.splitlines()]
    shown = {what: numbers for _, what, *numbers in table}
    assert shown["sessions"] == ["0", "3"]
    assert shown["concurrent turns"] == ["0", "no limit"]
    assert shown["bytes per request"] == ["-", "1000"]
    assert "until unused for 30 days" in said
    out, _ = run("show_usage", "acme", "--keys")
    assert any(line.startswith(key.prefix) and "tokens today" in line and line.endswith(" 5") for line in out.splitlines())
    keys.expire(key, actor="t")
    assert key.prefix not in run("show_usage", "acme", "--keys")[0]


def test_show_usage_of_an_unknown_tenant_is_an_error() -> None:
    with pytest.raises(CommandError, match="no tenant"):
        run("show_usage", "nobody")


def used(tenant: Tenant, key: ApiKey, **given: Any) -> None:
    fields = {"session": "sess_1", "agent": "a", "model": "v:m", "purpose": "turn", "calls": 2, "day": date(2026, 11, 1)}
    tokens = {"input_tokens": 10, "output_tokens": 5, "cache_read_tokens": 1, "cost_nano": 1_500_000_000}
    ModelUse.objects.create(**{"tenant_id": tenant.pk, "key_id": key.pk, **fields, **tokens, **given})


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


def test_export_usage_writes_csv_by_day_session_key_and_agent(acme: Tenant) -> None:
    key = issue(acme, name="build, test").key
    used(acme, key)
    used(acme, key, day=date(2026, 11, 2), cost_nano=None)
    out, said = run("export_usage")
    first, second = rows_of(out)
    shown = f"{key.prefix}… build, test"
    assert first == {
        "day": "2026-11-01", "tenant": "acme", "session": "sess_1", "key": shown, "agent": "a", "model": "v:m",
        "purpose": "turn", "calls": "2", "input_tokens": "10", "output_tokens": "5", "cache_read_tokens": "1",
        "cost": "1.500000000", "unpriced_tokens": "0",
    }  # fmt: skip
    assert (second["day"], second["cost"], second["unpriced_tokens"]) == ("2026-11-02", "", "15")
    assert "2 lines" in said


def test_export_usage_sums_by_groups_for_a_period_and_a_tenant(acme: Tenant, tmp_path: Path) -> None:
    other, _ = tenants.create("globex")
    key, theirs = issue(acme).key, issue(other).key
    for number in range(1, 4):
        used(acme, key, day=date(2026, 11, number), session=f"sess_{number}")
    used(other, theirs)
    path = tmp_path / "use.csv"
    run("export_usage", "--tenant", "acme", "--from", "2026-11-02", "--to", "2026-11-03", "--by", "agent", "--output", str(path))
    (line,) = rows_of(path.read_text())
    assert list(line)[:2] == ["agent", "calls"]
    assert (line["calls"], line["input_tokens"], line["cost"]) == ("4", "20", "3.000000000")
    by_tenant = rows_of(run("export_usage", "--by", "tenant,day")[0])
    assert [line["tenant"] for line in by_tenant] == ["acme", "acme", "acme", "globex"]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--by", "colour"], "not colour"),
        (["--by", ""], "--by takes"),
        (["--by", "day,day"], "twice"),
        (["--from", "2026-11-02", "--to", "2026-11-01"], "is after"),
        (["--from", "yesterday"], "yesterday"),
        (["--tenant", "nobody"], "no tenant"),
        (["--output", "/nowhere/at/all.csv"], "cannot write"),
    ],
)
def test_export_usage_reports_invalid_arguments(words: list[str], fault: str) -> None:
    with pytest.raises(CommandError, match=fault):
        run("export_usage", *words)


def test_usage_of_a_deleted_tenant_or_key_is_shown_by_number(acme: Tenant) -> None:
    ModelUse.objects.create(
        tenant_id=77, key_id=78, day=date(2026, 11, 1), session="s", agent="a", model="m", purpose="turn",
        calls=1, input_tokens=1, output_tokens=1, cache_read_tokens=0,
    )  # fmt: skip
    (line,) = rows_of(run("export_usage", "--by", "tenant,key")[0])
    assert (line["tenant"], line["key"]) == ("#77", "#78")
