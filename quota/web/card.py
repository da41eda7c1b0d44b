"""The card of a server that has ended: why, what was seen, what was saved by its kit's own word, and what can be done
about it. Pure but for `card_of`, which reads the book."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any
from urllib.parse import quote, urlencode

from quota.appeals import Appeal, may_appeal, proposed
from quota.i18n import N_, _, _n
from quota.leases import HolderKind, Lease, State, StopReason
from quota.reported import Farewell
from quota.told import retold
from quota.units import show_credits
from quota.web.history import evidence_words
from quota.web.lines import sentence
from quota.web.parts import ServiceParts
from quota.web.words import credits_words, memory_words, share_words, stop_words

#: Rows of a list that are shown; how many there are besides is said.
SHOWN = 20
#: Ends that were decided by a rule upon what was seen: others show no evidence.
JUDGED = (StopReason.IDLE, StopReason.MAX_AGE, StopReason.SHUTDOWN)

_SAVED = {
    "notebook": N_("Notebook"),
    "variables": N_("Variables"),
    "checkpoint": N_("Checkpoint"),
    "tabs": N_("Open tabs"),
}
_LOST = {
    "variable": N_("Variable"),
    "notebook": N_("Notebook"),
    "kernel": N_("Kernel"),
    "checkpoint": N_("Checkpoint"),
    "terminal": N_("Terminal"),
}

_OTHER = N_("Other")


@dataclass(frozen=True, slots=True)
class Kept:
    """One thing of the kit's list: what kind, its name, and more in words."""

    kind: str
    name: str
    more: str


@dataclass(frozen=True, slots=True)
class AppealView:
    """What was said of the stop, and what was answered."""

    words: str
    at: datetime
    decided: str
    answer: str


@dataclass(frozen=True, slots=True)
class Card:
    """`report` says what the kit told of its saving, "" where it never spoke; `resume` is an address below the Hub's,
    "" where there is nothing to resume. `may_appeal`: its user may say that it was wrong."""

    evidence: tuple[tuple[str, str], ...]
    report: str
    saved: tuple[Kept, ...]
    lost: tuple[Kept, ...]
    saved_more: int
    lost_more: int
    resume: str
    may_appeal: bool
    appeal: AppealView | None


def card_of(parts: ServiceParts, lease: Lease, viewer: str) -> Card | None:
    """Of a lease that has ended, for somebody who may see it; None for one that lives. Blocks."""
    if lease.live:
        return None
    verdict = parts.rows.verdict(lease.id) if lease.stop_reason in JUDGED else None
    appeal = parts.appeals.of([lease.id]).get(lease.id)
    evidence = verdict.evidence if verdict else {}
    told = parts.farewells.of(lease.id)
    return card(lease, evidence, told, appeal, viewer, parts.clock.now(), parts.tz)


def card(
    lease: Lease,
    evidence: Mapping[str, Any],
    farewell: Farewell | None,
    appeal: Appeal | None,
    viewer: str,
    now: datetime,
    zone: tzinfo,
) -> Card:
    report = farewell.report if farewell else {}
    saved, lost = report.get("saved") or (), report.get("lost") or ()
    mine = lease.holder.user == viewer and lease.holder.kind is HolderKind.SERVER
    return Card(
        evidence=evidence_words(evidence, zone),
        report=report_words(farewell),
        saved=tuple(_saved(row) for row in saved[:SHOWN]),
        lost=tuple(_lost(row) for row in lost[:SHOWN]),
        saved_more=_besides(saved, report.get("saved_left_out")),
        lost_more=_besides(lost, report.get("lost_left_out")),
        resume=resume_path(lease) if mine else "",
        may_appeal=appeal is None and may_appeal(lease, viewer, now) is None,
        appeal=None if appeal is None else appeal_view(appeal),
    )


def _besides(rows: Sequence[Any], left_out: object) -> int:
    return max(0, len(rows) - SHOWN) + (left_out if isinstance(left_out, int) else 0)


def report_words(farewell: Farewell | None) -> str:
    """How far the kit got, in a sentence; "" where it said nothing."""
    if farewell is None:
        return ""
    if farewell.done_at is None:
        return _("The server's own kit began to save, and did not say that it was done.")
    if not farewell.report.get("lost"):
        return _("The server's own kit says that everything open was saved.")
    return _("The server's own kit says what it saved, and what it could not.")


def _saved(row: Mapping[str, Any]) -> Kept:
    count, size = row.get("count"), row.get("bytes")
    more = []
    if isinstance(count, int) and row.get("kind") == "variables":
        more.append(_n("%(n)s variable", "%(n)s variables", count))
    if isinstance(size, int) and size >= 1024 * 1024:
        more.append(memory_words(size // 1024 // 1024))
    name = row.get("what") or row.get("path") or ""
    return Kept(_(_SAVED.get(str(row.get("kind")), _OTHER)), str(name), ", ".join(more))


def _lost(row: Mapping[str, Any]) -> Kept:
    where, why = str(row.get("where") or ""), str(row.get("why") or "")
    name = str(row.get("what") or "")
    shown = _("%(name)s in %(where)s", name=name, where=where) if name and where else name or where
    return Kept(_(_LOST.get(str(row.get("kind")), _OTHER)), shown, sentence(retold(why)))


def resume_path(lease: Lease) -> str:
    """The start page of the same server, which selects what this lease had; its kit then offers what it saved. Behind
    the #, as the Hub takes what stands in a query for the options of a start."""
    user, server = quote(lease.holder.user, safe=""), quote(lease.holder.server, safe="")
    had = urlencode({"profile": lease.profile, "image": lease.image, "payer": lease.account}, quote_via=quote)
    return f"spawn/{user}/{server}#{had}" if server else f"spawn/{user}#{had}"


def appeal_view(appeal: Appeal) -> AppealView:
    decided = ""
    if appeal.granted is not None:
        amount = credits_words(appeal.refund)
        decided = (
            _("Granted by %(name)s: %(amount)s credits were given back.", name=appeal.decided_by, amount=amount)
            if appeal.granted
            else _("Not granted by %(name)s.", name=appeal.decided_by)
        )
    return AppealView(appeal.words, appeal.at, decided, appeal.answer)


@dataclass(frozen=True, slots=True)
class Doubt:
    """An appeal on the admin's desk: whose, about what, what was seen, and what giving back would be."""

    lease: str
    user: str
    what: str
    why: str
    words: str
    at: datetime
    evidence: tuple[tuple[str, str], ...]
    proposed: str
    charged: str
    settled: bool


def doubts(parts: ServiceParts) -> tuple[Doubt, ...]:
    """Appeals that nobody has decided, the oldest first. Blocks."""
    found = {each.lease_id: each for each in parts.appeals.open()}
    leases = parts.book.some(list(found))
    segments, verdicts = parts.book.segments(list(found)), {each: parts.rows.verdict(each) for each in found}
    views = []
    for lease in leases:
        verdict, appeal = verdicts[lease.id], found[lease.id]
        evidence = verdict.evidence if verdict and lease.stop_reason in JUDGED else {}
        views.append(
            Doubt(
                lease=lease.id,
                user=appeal.user,
                what=f"{lease.profile}, {share_words(lease)}",
                why=sentence(stop_words(lease)),
                words=appeal.words,
                at=appeal.at,
                evidence=evidence_words(evidence, parts.tz),
                proposed=show_credits(proposed(lease, segments[lease.id], evidence), 6),
                charged=credits_words(lease.charged),
                settled=lease.state is State.SETTLED,
            )
        )
    return tuple(views)
