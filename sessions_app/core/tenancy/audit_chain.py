"""The chain of audit records: each tenant's records, and the server's own, are linked by keyed hashes and sealed daily.

A record is written in the transaction that it describes, with a keyed hash of its own and no place in the chain: that would
make transactions wait for each other. Housekeeping then links new records in rounds. Links are in a table of their own, so
that the server's database role needs no right to change a record. ``verify`` recomputes everything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.db import connection, transaction
from django.utils import timezone

from sessions_app.core.tenancy import audit, audit_keys
from sessions_app.models import AuditHead, AuditLink, AuditRecord, AuditSeal, Tenant

SERVER_CHAIN = 0
BATCH = 1000
_LATE = 100_000
"""How many numbers after a record a transaction may still commit one with a lower number."""
_LOCK = 0x61756469
_UNLINKED_AFTER = timedelta(minutes=30)


def chain_of(record: AuditRecord) -> int:
    return record.tenant_id or SERVER_CHAIN


# --- linking and sealing ---


def link_new(limit: int = BATCH) -> int:
    """Link up to ``limit`` new records; returns how many. One process at a time."""
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("select pg_try_advisory_xact_lock(%s)", [_LOCK])
                if not cursor.fetchone()[0]:
                    return 0
        last = AuditLink.objects.order_by("-record").values_list("record", flat=True).first() or 0
        rows = list(AuditRecord.objects.raw(_UNLINKED, [last - _LATE, limit]))
        heads = {head.chain: head for head in AuditHead.objects.filter(chain__in={chain_of(row) for row in rows})}
        links = []
        for row in rows:
            chain = chain_of(row)
            head = heads.get(chain) or AuditHead(chain=chain, number=0, hash="")
            number = head.number + 1
            hash_ = audit_keys.mac("link", _link_values(row, chain, number, head.hash))
            links.append(AuditLink(chain=chain, number=number, record=row.pk, unsigned=row.mac is None, hash=hash_))
            head.number, head.hash = number, hash_
            heads[chain] = head
        AuditLink.objects.bulk_create(links)
        for head in heads.values():
            head.mac = audit_keys.mac("head", [head.chain, head.number, head.hash])
            head.save()
    return len(rows)


_UNLINKED = """
select r.* from sessions_app_auditrecord r where r.id > %s
 and not exists (select 1 from sessions_app_auditlink l where l.record = r.id) order by r.id limit %s
"""


def seal_days(today: date | None = None) -> int:
    """Seal the end of each chain for yesterday, if it was not sealed; returns how many. Call it after ``link_new``."""
    day = (today or timezone.now().date()) - timedelta(days=1)
    sealed = 0
    for head in AuditHead.objects.exclude(chain__in=AuditSeal.objects.filter(day=day).values("chain")):
        link = _last_link_of(head.chain, day)
        if link is None:
            continue
        mac = audit_keys.mac("seal", [head.chain, day.isoformat(), link.number, link.hash])
        seal = AuditSeal(chain=head.chain, day=day, number=link.number, hash=link.hash, mac=mac)
        sealed += len(AuditSeal.objects.bulk_create([seal], ignore_conflicts=True))
    return sealed


def _last_link_of(chain: int, day: date) -> AuditLink | None:
    """The newest link of the chain whose record and all before it are of that day or older."""
    end = datetime.combine(day + timedelta(days=1), datetime.min.time(), UTC)
    newer = AuditRecord.objects.filter(at__gte=end)
    newer = newer.filter(tenant_id=chain) if chain else newer.filter(tenant__isnull=True)
    first_newer = AuditLink.objects.filter(chain=chain, record__in=newer.values("pk")).order_by("number").first()
    links = AuditLink.objects.filter(chain=chain)
    if first_newer is not None:
        links = links.filter(number__lt=first_newer.number)
    return links.order_by("-number").first()


def keep_up(seconds: float = 20.0) -> None:
    """One round of housekeeping: link all new records, as many as the time allows, and seal yesterday."""
    until = timezone.now() + timedelta(seconds=seconds)
    while link_new() == BATCH and timezone.now() < until:
        pass
    seal_days()


# --- retention ---


def prune(before: date, *, actor: str, address: str) -> int:
    """Delete records up to the last seal before a day; returns how many. The chain then begins after that seal.

    The server's database role may not do this; run it as the role that owns the tables.
    """
    deleted = 0
    for chain in AuditHead.objects.order_by("chain").values_list("chain", flat=True):
        with transaction.atomic():
            seal = AuditSeal.objects.filter(chain=chain, day__lt=before).order_by("-day").first()
            if seal is None or seal.pruned:
                continue
            seal.pruned = audit_keys.mac("pruned", [seal.chain, seal.number, seal.hash])
            seal.save(update_fields=["pruned"])
            links = AuditLink.objects.filter(chain=chain, number__lte=seal.number)
            AuditRecord.objects.filter(pk__in=links.values("record")).delete()
            number = links.delete()[0]
            deleted += number
            audit.record(
                actor=actor,
                address=address,
                action=audit.Action.AUDIT_PRUNED,
                target=f"chain {chain}",
                tenant_id=chain or None,
                detail=f"{number} records up to number {seal.number}, of {seal.day} and before",
            )
    return deleted


# --- verifying ---


@dataclass(frozen=True, slots=True)
class Break:
    """A place where the audit is not what was written. ``kind``: changed, deleted, inserted, reordered, truncated, …"""

    kind: str
    chain: int
    number: int | None
    record: int | None
    text: str

    def __str__(self) -> str:
        place = "" if self.number is None else f" number {self.number}"
        record = "" if self.record is None else f" record {self.record}"
        return f"{self.kind}: {name_of(self.chain)}{place}{record}: {self.text}"


def verify(only: Collection[int] | None = None) -> Iterator[Break]:
    """All breaks of all chains, or of ``only`` these, in order."""
    heads = {head.chain: head for head in AuditHead.objects.all()}
    chains = {*heads, *AuditLink.objects.order_by().values_list("chain", flat=True).distinct()}
    chains |= set(AuditSeal.objects.order_by().values_list("chain", flat=True).distinct())
    for chain in sorted(chains if only is None else chains.intersection(only)):
        yield from _verify_chain(chain, heads.get(chain))
    for found in _unlinked():
        if only is None or found.chain in only:
            yield found


def _verify_chain(chain: int, head: AuditHead | None) -> Iterator[Break]:
    seals = {seal.number: seal for seal in AuditSeal.objects.filter(chain=chain).order_by("day")}
    number, hash_, signed_before = 0, "", False
    first = True
    found: dict[int, str] = {}
    for links in _in_batches(chain):
        records = AuditRecord.objects.in_bulk([link.record for link in links])
        for link in links:
            if first and link.number > 1:
                seal = seals.get(link.number - 1)
                if seal is None or not audit_keys.holds(seal.pruned, "pruned", [chain, seal.number, seal.hash]):
                    yield Break("deleted", chain, link.number - 1, None, f"the links 1 to {link.number - 1} are missing")
                else:
                    number, hash_ = seal.number, seal.hash
            elif link.number != number + 1:
                yield Break("deleted", chain, number + 1, None, f"the links {number + 1} to {link.number - 1} are missing")
            first = False
            yield from _verify_link(link, records, hash_, signed_before)
            signed_before = signed_before or not link.unsigned
            number, hash_ = link.number, link.hash
            if link.number in seals:
                found[link.number] = link.hash
    yield from _verify_end(chain, head, seals, number, hash_, found)


def _verify_link(link: AuditLink, records: Mapping[int, AuditRecord], previous: str, signed_before: bool) -> Iterator[Break]:
    record = records.get(link.record)
    where = (link.chain, link.number, link.record)
    if record is None:
        yield Break("deleted", *where, "the record is missing")
        return
    own = None if record.mac is None else audit_keys.holds(record.mac, "record", audit.values_of(record))
    if record.mac is None and (signed_before or not link.unsigned):
        yield Break("inserted", *where, "the record has no hash of its own: this server did not write it")
    elif record.mac is not None and own is False:
        yield Break("changed", *where, "the record is not what was written")
        return
    linked = audit_keys.holds(link.hash, "link", _link_values(record, link.chain, link.number, previous))
    if linked is None or (record.mac is not None and own is None):
        yield Break("unreadable", *where, "the audit key cannot be read with AGENTHOST_KEY_RING")
    elif linked is False:
        # The record itself is right, so it or its neighbour is in another place than it was linked.
        kind = "reordered" if own else "changed"
        yield Break(kind, *where, "the link does not fit the record and the link before it")


def _verify_end(
    chain: int, head: AuditHead | None, seals: Mapping[int, AuditSeal], number: int, hash_: str, found: Mapping[int, str]
) -> Iterator[Break]:
    if head is None:
        yield Break("deleted", chain, None, None, "the chain has no head")
    elif not audit_keys.holds(head.mac, "head", [chain, head.number, head.hash]):
        yield Break("changed", chain, head.number, None, "the head of the chain is not what was written")
    elif head.number > number:
        yield Break("truncated", chain, number + 1, None, f"the links {number + 1} to {head.number} at the end are missing")
    elif (head.number, head.hash) != (number, hash_):
        yield Break("changed", chain, head.number, None, "the chain does not end with its head")
    for seal in seals.values():
        if not audit_keys.holds(seal.mac, "seal", [chain, seal.day.isoformat(), seal.number, seal.hash]):
            yield Break("changed", chain, seal.number, None, f"the seal of {seal.day} is not what was written")
        elif seal.number > number:
            yield Break("truncated", chain, seal.number, None, f"the chain is shorter than on {seal.day}, when it was sealed")
        elif seal.number in found and found[seal.number] != seal.hash:
            yield Break("changed", chain, seal.number, None, f"the chain was another one on {seal.day}, when it was sealed")


def _unlinked() -> Iterator[Break]:
    """Records that no link knows: newer ones wait for housekeeping, the others were not linked or lost their link."""
    for record in AuditRecord.objects.raw(_UNLINKED, [0, BATCH]):
        if record.mac is None:
            if record.at < timezone.now() - _UNLINKED_AFTER:
                yield Break("inserted", chain_of(record), None, record.pk, "the record has no hash and no link")
        elif audit_keys.holds(record.mac, "record", audit.values_of(record)) is False:
            yield Break("changed", chain_of(record), None, record.pk, "the record is not what was written")
        elif record.at < timezone.now() - _UNLINKED_AFTER:
            yield Break("unlinked", chain_of(record), None, record.pk, "the record has no link; does housekeeping run?")


def _in_batches(chain: int) -> Iterator[list[AuditLink]]:
    number = 0
    while links := list(AuditLink.objects.filter(chain=chain, number__gt=number).order_by("number")[:BATCH]):
        yield links
        number = links[-1].number


def _link_values(record: AuditRecord, chain: int, number: int, previous: str) -> Sequence[str | int | None]:
    return [chain, number, record.pk, previous, record.mac, *audit.values_of(record)]


def name_of(chain: int) -> str:
    """The tenant's slug, for people."""
    if chain == SERVER_CHAIN:
        return "the server"
    return Tenant.objects.filter(pk=chain).values_list("slug", flat=True).first() or f"tenant {chain}"
