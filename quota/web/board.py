"""Who holds what: devices with their free room, and everybody's live leases, page by page. Blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from quota.book_reads import Holding
from quota.leases import Device, Lease
from quota.web.lines import DeviceCard, LeaseRow, device_card, rows_of
from quota.web.lists import Pages, cut
from quota.web.parts import ServiceParts
from quota.web.snapshot import snapshot
from quota.web.words import device_words, server_words, share_words

#: Rows and cards of one page, which with all that it loads keeps within 300 kB.
ROWS, CARDS = 50, 40


@dataclass(frozen=True, slots=True)
class BoardView:
    """Devices with their free room, and the live leases that match the filter. `more_devices` are not shown."""

    devices: tuple[DeviceCard, ...]
    more_devices: int
    rows: tuple[LeaseRow, ...]
    pages: Pages
    filter: str


def board(parts: ServiceParts, wanted: str, page: str = "") -> BoardView:
    """One page of it; the template shows money and receipts to administrators alone."""
    devices = {device.uuid: device for device in parts.rows.devices()}
    live = parts.book.holdings()
    found = [lease for lease in live if not wanted or matches(lease, devices, wanted)]
    here, pages = cut(found, page, ROWS)
    shown = parts.book.some([lease.id for lease in here])
    cards = cards_of(devices, found, wanted)
    held = held_by_device(live)
    return BoardView(
        devices=tuple(device_card(each, held.get(each.uuid, ()), parts.isolation_words(each.mode)) for each in cards),
        more_devices=len(devices) - len(cards),
        rows=rows_of(shown, snapshot(parts, shown, use=True)),
        pages=pages,
        filter=wanted,
    )


def cards_of(devices: Mapping[str, Device], found: Iterable[Lease | Holding], wanted: str) -> Sequence[Device]:
    """All devices where they are few; else the first of those that match, or that a matching lease holds."""
    if len(devices) <= CARDS or not wanted:
        return list(devices.values())[:CARDS]
    theirs = {slot.device for lease in found for slot in lease.slots}
    text = wanted.casefold()
    chosen = [
        device
        for device in devices.values()
        if device.uuid in theirs or text in f"{device_words(device)}\n{device.uuid}".casefold()
    ]
    return chosen[:CARDS]


def held_by_device(live: Iterable[Holding]) -> dict[str, list[Holding]]:
    """Who holds a part of each device."""
    held: dict[str, list[Holding]] = {}
    for lease in live:
        for uuid in {slot.device for slot in lease.slots if slot.device is not None}:
            held.setdefault(uuid, []).append(lease)
    return held


def matches(lease: Lease | Holding, devices: Mapping[str, Device], wanted: str) -> bool:
    """Whether the text is somewhere in the row where a person would look for it."""
    places = [slot.device for slot in lease.slots if slot.device is not None]
    named = [device_words(devices[uuid]) if uuid in devices else uuid for uuid in places]
    hay = (lease.holder.user, server_words(lease.holder.server), lease.profile, share_words(lease), *named)
    return wanted.casefold() in "\n".join(hay).casefold()
