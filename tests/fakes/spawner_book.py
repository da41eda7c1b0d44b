"""A book in memory, as far as the Hub's spawner speaks with one: the states, the compare-and-swap, the reasons."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import count
from types import SimpleNamespace

from quota.entitlement import Limits
from quota.errors import NotFound, Reason, Refused, Stale
from quota.leases import LIVE, Device, DeviceState, Holder, Lease, LeaseRequest, Price, State, StopReason, Target
from quota.ports import Clock, Place
from quota.reported import Farewell
from quota.units import MicroCredits

PRICE = Price(1, MicroCredits(1_000_000), MicroCredits(0))


def device(position: int = 0, *, simulated: bool = True, used: int = 0, mode: str = "time-slice") -> Device:
    name = "simulated GPU" if simulated else "NVIDIA A10"
    uuid = f"{'SIM' if simulated else 'GPU'}-{position}"
    return Device("h", uuid, position, name, 24576, mode, simulated, DeviceState.OK, used=used)


class FakeBook:
    """`broken` names calls that raise; `refusal` is what the next reservation meets; `hooks` run before a call."""

    def __init__(self, clock: Clock, devices: Sequence[Device] = (device(0), device(1))) -> None:
        self.clock = clock
        self.fleet = list(devices)
        self.leases: dict[str, Lease] = {}
        self.requests: list[LeaseRequest] = []  # as they came
        self.voided: set[str] = set()
        self.broken: set[str] = set()
        self.calls: list[str] = []
        self.refusal: Refused | None = None
        self.kits: dict[str, tuple[datetime, dict[str, object]]] = {}  # what they reported last, by lease
        self.farewells: dict[str, Farewell] = {}
        self._ids = count(1)
        self._lock = threading.Lock()

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.broken:
            raise OSError("disk I/O error")

    def devices(self) -> list[Device]:
        self._call("devices")
        used: dict[str | None, int] = {}
        for lease in self.leases.values():
            for slot in lease.slots if lease.live else ():
                used[slot.device] = used.get(slot.device, 0) + slot.share
        return [replace(each, used=each.used + used.get(each.uuid, 0)) for each in self.fleet]

    def signals(self, lease_id: str) -> dict[str, tuple[datetime, dict[str, object]]]:
        return {"kit": self.kits[lease_id]} if lease_id in self.kits else {}

    def of_some(self, lease_ids: Sequence[str]) -> dict[str, Farewell]:
        return {name: self.farewells[name] for name in lease_ids if name in self.farewells}

    # ---- leases ------------------------------------------------------------------------------------------------

    def lease(self, lease_id: str) -> Lease:
        self._call("lease")
        return self.leases[lease_id]

    def live_of(self, holder: Holder) -> Lease | None:
        self._call("live_of")
        return next((each for each in self.leases.values() if each.holder == holder and each.live), None)

    def reserve(self, request: LeaseRequest, place: Place) -> Lease:
        self._call("reserve")
        self.requests.append(request)
        if self.refusal is not None:
            raise self.refusal
        with self._lock:
            earlier = next((each for each in self.leases.values() if each.holder == request.holder and each.live), None)
            if earlier is not None:
                raise Refused(Reason.STOPPING if earlier.target is Target.STOP else Reason.ALREADY_HELD)
            slots = place(self.devices(), request)
            simulated = any(slot.device and slot.device.startswith("SIM") for slot in slots)
            lease = Lease(
                id=f"l{next(self._ids)}",
                version=1,
                state=State.RESERVED,
                target=Target.RUN,
                holder=request.holder,
                account_id=1,
                account=request.account,
                profile=request.profile,
                image=request.image,
                share=request.share,
                count=request.count,
                slots=slots,
                simulated=simulated,
                price=PRICE,
                owner=request.owner,
                requested_at=self.clock.now(),
                requested_by=request.requested_by,
            )
            self.leases[lease.id] = lease
        return lease

    def put(self, lease: Lease, **changes: object) -> Lease:
        """Write without a check, as another process does."""
        now = self.leases[lease.id]
        self.leases[lease.id] = replace(now, version=now.version + 1, **changes)  # type: ignore[arg-type]
        return self.leases[lease.id]

    def _swap(self, lease: Lease, **changes: object) -> Lease:
        if self.leases[lease.id].version != lease.version:
            raise Stale(lease.id)
        return self.put(lease, **changes)

    def mark_starting(self, lease: Lease, deadline: datetime) -> Lease:
        self._call("mark_starting")
        return self._swap(lease, state=State.STARTING, deadline=deadline)

    def mark_running(self, lease: Lease, boot: str, ready_at: datetime) -> Lease:
        self._call("mark_running")
        assert lease.owner == boot
        return self._swap(lease, state=State.RUNNING, started_at=ready_at)

    def request_stop(
        self,
        lease_id: str,
        reason: StopReason,
        *,
        detail: str = "",
        by: str = "",
        stop_after: datetime | None = None,
        expect: Lease | None = None,
    ) -> Lease:
        self._call("request_stop")
        lease = self.leases[lease_id]
        if expect is not None and expect.version != lease.version:
            raise Stale(lease_id)
        if lease.state not in LIVE or lease.target is Target.STOP:
            return lease
        return self.put(
            lease, target=Target.STOP, stop_reason=reason, stop_detail=detail, stop_by=by, stop_after=stop_after
        )

    def acknowledge(self, lease_id: str, boot: str) -> Lease:
        self._call("acknowledge")
        lease = self.leases[lease_id]
        if lease.state in (State.RESERVED, State.STARTING) or (
            lease.state is State.RUNNING and lease.target is Target.STOP
        ):
            return self.put(lease, state=State.STOPPING, target=Target.STOP)
        return lease

    def void(self, lease_id: str) -> None:
        self._call("void")
        self.voided.add(lease_id)

    def free(self, lease_id: str) -> None:
        """What the agent does once it has seen that nothing runs."""
        self.put(self.leases[lease_id], state=State.RELEASED, target=Target.STOP)

    def one(self) -> Lease:
        (lease,) = self.leases.values()
        return lease


class FakeBank:
    def __init__(self, available: int = 100_000_000, limits: Limits | None = None) -> None:
        self.available = available
        self.limits = limits or Limits(max_servers=3, max_gpu_milli=2000)
        self.known: set[str] = set()

    def ensure_account(self, name: str) -> None:
        self.known.add(name)

    def account(self, name: str) -> SimpleNamespace:
        if name not in self.known:
            raise NotFound(name)
        return SimpleNamespace(available=self.available, limits=self.limits)

    def price(self) -> Price:
        return PRICE
