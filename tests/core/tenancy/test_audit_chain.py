"""The chain of the audit: every change made in SQL is found, and named with record, tenant and kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from sessions_app.core.tenancy import audit, audit_chain, audit_keys
from sessions_app.models import AuditHead, AuditKey, AuditLink, AuditRecord, AuditSeal, Tenant
from tests.core.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def acme(transactional_db: None) -> Tenant:
    return Tenant.objects.create(slug="acme")


def record(number: int, tenant: Tenant | None = None) -> AuditRecord:
    return audit.record(actor="admin:eve", action=audit.Action.KEY_ISSUED, target=f"key {number}", tenant=tenant, address="::1")


@pytest.fixture
def chained(acme: Tenant) -> list[int]:
    """Six records of a tenant and three of the server, linked; the record numbers of the tenant's."""
    own = [record(number, acme).pk for number in range(6)]
    for number in range(3):
        record(number)
    assert audit_chain.link_new() == 9
    assert breaks() == []
    return own


def breaks() -> list[tuple[str, int, int | None]]:
    return [(one.kind, one.chain, one.number) for one in audit_chain.verify()]


def sql(statement: str, *values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def each(*statements: tuple[Any, ...]) -> None:
    for statement in statements:
        sql(*statement)


def test_records_are_linked_in_order_per_tenant_and_the_server(chained: list[int], acme: Tenant) -> None:
    assert list(AuditLink.objects.filter(chain=acme.pk).order_by("number").values_list("record", flat=True)) == chained
    assert list(AuditLink.objects.filter(chain=0).order_by("number").values_list("number", flat=True)) == [1, 2, 3]
    assert audit_chain.link_new() == 0


@pytest.mark.parametrize("column", ["actor", "action", "target", "address", "detail", "at", "tenant_id", "uid", "mac"])
def test_a_changed_column_is_found(chained: list[int], acme: Tenant, column: str) -> None:
    value: Any = {"at": timezone.now(), "tenant_id": None, "uid": "0" * 32}.get(column, "other")
    sql(f"update sessions_app_auditrecord set {column} = %s where id = %s", value, chained[2])
    assert breaks() == [("changed", acme.pk, 3)]


TAMPERINGS: dict[str, tuple[Callable[[list[int], int], None], tuple[str, int]]] = {
    "a record is deleted": (lambda ids, chain: sql("delete from sessions_app_auditrecord where id = %s", ids[2]), ("deleted", 3)),
    "a record and its link are deleted": (
        lambda ids, chain: each(
            ("delete from sessions_app_auditrecord where id = %s", ids[2]),
            ("delete from sessions_app_auditlink where record = %s", ids[2]),
        ),
        ("deleted", 3),
    ),
    "the first records and links are deleted": (
        lambda ids, chain: sql("delete from sessions_app_auditlink where chain = %s and number <= 2", chain),
        ("deleted", 2),
    ),
    "two records change their places": (lambda ids, chain: _swap(ids), ("reordered", 2)),
    "the end is cut": (
        lambda ids, chain: each(
            ("delete from sessions_app_auditrecord where id in (%s, %s)", ids[4], ids[5]),
            ("delete from sessions_app_auditlink where chain = %s and number >= 5", chain),
        ),
        ("truncated", 5),
    ),
    "the end is cut and the head is put there": (
        lambda ids, chain: each(
            ("delete from sessions_app_auditlink where chain = %s and number >= 5", chain),
            ("delete from sessions_app_auditrecord where id in (%s, %s)", ids[4], ids[5]),
            (
                "update sessions_app_audithead set number = 4, hash = (select hash from sessions_app_auditlink"
                " where chain = %s and number = 4) where chain = %s",
                chain,
                chain,
            ),
        ),
        ("changed", 4),
    ),
    "a link is changed": (
        lambda ids, chain: sql("update sessions_app_auditlink set hash = 'x' where record = %s", ids[5]),
        ("changed", 6),
    ),
}


def _swap(ids: list[int]) -> None:
    sql("update sessions_app_auditlink set record = -1 where record = %s", ids[1])
    sql("update sessions_app_auditlink set record = %s where record = %s", ids[1], ids[3])
    sql("update sessions_app_auditlink set record = %s where record = -1", ids[3])


@pytest.mark.parametrize("what", TAMPERINGS)
def test_every_kind_of_tampering_is_found_and_named(chained: list[int], acme: Tenant, what: str) -> None:
    tamper, (kind, number) = TAMPERINGS[what]
    tamper(chained, acme.pk)
    found = breaks()
    assert (kind, acme.pk, number) in found, found
    assert all(chain == acme.pk for _, chain, _ in found), "other chains are whole"


def test_a_record_that_was_inserted_in_sql_is_found_even_after_it_was_linked(chained: list[int], acme: Tenant) -> None:
    AuditRecord.objects.create(tenant=acme, actor="admin:eve", action="key_issued", target="forged")
    copied = AuditRecord.objects.get(pk=chained[0])
    AuditRecord.objects.create(
        tenant=acme, at=copied.at, actor="admin:eve", action="key_issued", target="forged too", mac=copied.mac
    )
    audit_chain.link_new()
    assert breaks() == [("inserted", acme.pk, 7), ("changed", acme.pk, 8)]


def test_a_copy_of_a_record_cannot_be_inserted(chained: list[int]) -> None:
    from django.db import IntegrityError

    copied = AuditRecord.objects.get(pk=chained[0])
    copied.pk = None
    with pytest.raises(IntegrityError):
        copied.save(force_insert=True)


def test_records_of_a_release_before_the_chain_are_accepted_only_at_its_beginning(acme: Tenant) -> None:
    AuditRecord.objects.create(tenant=acme, actor="x", action="key_issued", target="old")
    audit_chain.link_new()
    record(1, acme)
    audit_chain.link_new()
    assert breaks() == []


def test_a_record_that_was_changed_before_it_was_linked_is_found(acme: Tenant) -> None:
    row = record(1, acme)
    sql("update sessions_app_auditrecord set actor = 'nobody' where id = %s", row.pk)
    assert breaks() == [("changed", acme.pk, None)]
    audit_chain.link_new()
    assert breaks() == [("changed", acme.pk, 1)]


def test_a_record_that_commits_late_is_linked(chained: list[int], acme: Tenant) -> None:
    late = record(7, acme)
    row = AuditRecord.objects.filter(pk=late.pk).values().get()
    AuditRecord.objects.filter(pk=late.pk).delete()
    record(8, acme)
    audit_chain.link_new()
    AuditRecord.objects.bulk_create([AuditRecord(**row)])
    assert audit_chain.link_new() == 1
    assert breaks() == []


def test_days_are_sealed_once_and_a_cut_behind_a_seal_is_found(chained: list[int], acme: Tenant) -> None:
    tomorrow = timezone.now().date() + timedelta(days=1)
    assert audit_chain.seal_days(tomorrow) == 2
    assert audit_chain.seal_days(tomorrow) == 0
    assert AuditSeal.objects.get(chain=acme.pk).number == 6
    assert breaks() == []
    sql("delete from sessions_app_auditlink where chain = %s and number >= 5", acme.pk)
    link = AuditLink.objects.get(chain=acme.pk, number=4)
    # Even with a head that this server could have written then.
    mac = audit_keys.mac("head", [acme.pk, 4, link.hash])
    AuditHead.objects.filter(chain=acme.pk).update(number=4, hash=link.hash, mac=mac)
    assert ("truncated", acme.pk, 6) in breaks()


def test_pruned_records_leave_a_chain_that_can_be_verified(chained: list[int], acme: Tenant) -> None:
    tomorrow = timezone.now().date() + timedelta(days=1)
    audit_chain.seal_days(tomorrow)
    record(9, acme)
    audit_chain.link_new()
    assert audit_chain.prune(tomorrow, actor="shell:root", address="here") == 9
    audit_chain.link_new()
    assert breaks() == []
    assert AuditRecord.objects.filter(action="audit_pruned").count() == 2
    assert not AuditRecord.objects.filter(pk__in=chained).exists()


def test_a_new_key_ring_keeps_the_chain_and_a_lost_one_is_said(chained: list[int], settings: Settings) -> None:
    older = settings.AGENTHOST_KEY_RING
    settings.AGENTHOST_KEY_RING = [b"n" * 32, *older]
    assert list(audit_keys.reseal()) == [(1, 0)]
    settings.AGENTHOST_KEY_RING = [b"n" * 32]
    audit_keys.forget_known()
    assert breaks() == []
    settings.AGENTHOST_KEY_RING = [b"o" * 32]
    audit_keys.forget_known()
    assert {kind for kind, _, _ in breaks()} >= {"unreadable"}
    record(9)
    assert AuditKey.objects.count() == 2


def test_no_key_or_hash_key_is_stored_in_the_clear(chained: list[int]) -> None:
    number, _, _ = AuditRecord.objects.get(pk=chained[0]).mac.partition(":")  # type: ignore[union-attr]
    key = audit_keys._key(int(number))
    assert key.hex().encode() not in bytes(AuditKey.objects.get().sealed)


def test_processes_that_link_at_the_same_moment_link_each_record_once(acme: Tenant) -> None:
    for number in range(20):
        record(number, acme)
    at_once(*[audit_chain.link_new] * 4)
    audit_chain.link_new()
    assert AuditLink.objects.count() == 20
    assert breaks() == []


def test_the_command_names_the_tenant_and_the_record_and_fails(chained: list[int], acme: Tenant) -> None:
    out = StringIO()
    call_command("verify_audit", stdout=out, stderr=StringIO())
    assert out.getvalue() == ""
    sql("update sessions_app_auditrecord set actor = 'nobody' where id = %s", chained[2])
    with pytest.raises(SystemExit) as exit_:
        call_command("verify_audit", stdout=out, stderr=StringIO())
    assert exit_.value.code == 1
    assert out.getvalue() == f"changed: acme number 3 record {chained[2]}: the record is not what was written\n"


def test_an_export_has_each_linked_record_once_and_continues_where_it_ended(chained: list[int], acme: Tenant) -> None:
    out = StringIO()
    call_command("export_audit", "--tenant", "acme", stdout=out)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["record"], line["number"], line["tenant"]) for line in lines] == [
        (pk, n + 1, "acme") for n, pk in enumerate(chained)
    ]
    audit_chain.link_new()
    more = StringIO()
    call_command("export_audit", "--tenant", "acme", "--after", str(lines[-1]["link"]), stdout=more)
    assert [json.loads(line)["action"] for line in more.getvalue().splitlines()] == ["audit_exported"]
