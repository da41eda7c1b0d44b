"""The device part of the agent: reads the inventory, writes the rows of devices, tells what a person should look at.

Alerts it raises, each with the host at the end of its key:

* `fleet-driver:HOST`: the driver does not work, and why (not loaded, another version than its library, no permission)
* `fleet-blind:HOST`: for three intervals nothing was read, or not a device that leases hold, so that what it does is
  unknown and stops nobody
* `fleet-nameless:HOST`: there are devices that do not tell who they are, so that they have no row
* `gpu-stranger:HOST`, `gpu-ghost:HOST`: devices that take no new lease because of programs of no lease, or of memory
  that stays used with neither lease nor program (`strangers`); they clear by themselves

None of them touches a lease. XIDs become event rows "gpu-xid" {"device", "xid", "words", "application", "count"}; a
hardware one keeps its device from new leases until it has been quiet for `xid.CLEAN_AFTER`, also over a restart.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from quota.alerts import Alerts
from quota.leases import Device, DeviceState
from quota.rows import Rows
from spawner import xid
from spawner.fleet import to_devices
from spawner.modes import DeviceRule, modes_of
from spawner.ports import GpuReading, Inventory, Unreachable
from spawner.processes import name_and_user
from spawner.strangers import Owners, Suspicion, ghost_words, look, stranger_words

log = logging.getLogger("berth.agent")

#: How long a cycle waits for devices to answer before it goes on without them.
DEVICES_PATIENCE_S = 0.2
#: Intervals without a good read after which nothing is known; and as many cycles, for a clock that was set on.
BLIND_INTERVALS = BLIND_CYCLES = 3
#: An alert that stands is told again after so long.
TELL_AGAIN = timedelta(minutes=1)

XID_EVENT: Final = "gpu-xid"
#: Reports kept while the book cannot be written.
MOST_UNWRITTEN: Final = 1000


def is_due(last: datetime | None, every: timedelta, now: datetime) -> bool:
    """Whether something last done at `last` is to be done again; also where the machine's clock was set back."""
    return last is None or not timedelta(0) <= now - last < every


class DeviceWatch:
    """Reads the devices every `every` and writes their rows. An inventory that hangs delays nobody else: it is read
    in a thread, one at a time, and its answer is taken when it comes."""

    def __init__(
        self,
        rows: Rows,
        inventory: Inventory | None,
        host: str,
        mode: str,
        every: timedelta,
        alerts: Alerts | None = None,
        rules: Sequence[DeviceRule] = (),
    ) -> None:
        self._rows = rows
        self._rules = rules
        self._drained: frozenset[str] = frozenset()  # what took no new lease since the last writing
        self._inventory = inventory
        self._host = host
        self._mode = mode
        self._every = every
        self._asked: datetime | None = None
        self._reader: _Reader | None = None
        self._told = ""
        self._latest: tuple[datetime, tuple[GpuReading, ...]] | None = None
        self._began: datetime | None = None  # of the time without a good read
        self._blind_cycles = 0
        self._dark: dict[str, tuple[datetime, Device]] = {}  # held devices that cannot be read, since when
        self._faults = Faults(rows)
        self._alarms = Alarms(alerts, host)
        self._owners: Owners | None = None
        self._suspicions: dict[str, Suspicion] = {}

    def readings(self, now: datetime) -> Mapping[str, GpuReading] | None:
        """The last readings by UUID; None where they are missing or older than three intervals."""
        if self._latest is None or now - self._latest[0] > BLIND_INTERVALS * self._every:
            return None
        return {reading.uuid: reading for reading in self._latest[1] if reading.uuid and not reading.error}

    def run(self, now: datetime, owners: Owners | None = None) -> None:
        """Read when it is due, write what has come. Programs of no lease are told by `owners`; None: nobody knows."""
        self._owners = owners
        self._began = now if self._began is None else self._began
        if self._reader is None and is_due(self._asked, self._every, now):
            self._asked = now
            self._reader = _Reader(self._inventory)
            self._reader.start()
        if self._reader is not None:
            self._reader.join(DEVICES_PATIENCE_S)
            if not self._reader.is_alive():
                found, self._reader = self._reader.found, None
                self._take(found, now)
        self._faults.write()
        self._look_for_blindness(now)

    def _take(self, found: tuple[GpuReading, ...] | Unreachable, now: datetime) -> None:
        why = found.why if isinstance(found, Unreachable) else ""
        if why != self._told:
            log.log(logging.WARNING if why else logging.INFO, "Devices: %s", why or "they can be read again")
            self._told = why
        if not isinstance(found, Unreachable):
            self._latest, self._began = (now, found), now
            self._faults.take(found, now)
        self._alarms.tell("fleet-driver", f"The GPUs of {self._host} cannot be read: {why}." if why else "", now)
        if not isinstance(found, Unreachable):
            self._alarms.tell("fleet-nameless", _nameless_words(self._host, found), now)
        self._write(found, now)

    def _write(self, found: tuple[GpuReading, ...] | Unreachable, now: datetime) -> None:
        before = [_without_orders(device) for device in self._rows.devices() if device.host == self._host]
        faults = self._suspects(found, before, now) | self._faults.standing([device.uuid for device in before], now)
        modes = {} if isinstance(found, Unreachable) else modes_of(self._rules, found)
        rows = to_devices(
            self._host, found, before, now, mode=self._mode, modes=modes, faults=faults, drained=self._drained
        )
        self._drained = frozenset()  # should the writing fail, nothing is known of what the book has
        self._rows.put_devices(self._host, rows)
        self._drained = frozenset(row.uuid for row in rows if row.state is not DeviceState.OK)
        well = set() if isinstance(found, Unreachable) else {one.uuid for one in found if not one.error}
        dark = {row.uuid: row for row in rows if row.used and row.uuid not in well}
        self._dark = {uuid: (self._dark.get(uuid, (now,))[0], row) for uuid, row in dark.items()}

    def _suspects(
        self, found: tuple[GpuReading, ...] | Unreachable, before: Sequence[Device], now: datetime
    ) -> dict[str, str]:
        """Why devices take no new lease for what is on them, by UUID; raises and clears the alerts about it. While
        nothing can be read, what was said stands."""
        if isinstance(found, Unreachable):
            return {}
        named = {reading.uuid: reading for reading in found if reading.uuid}
        if self._owners is not None:
            out = {device.uuid for device in before if device.state is DeviceState.SUSPECT}
            self._suspicions = {
                uuid: look(self._suspicions.get(uuid), reading, self._owners, name_and_user, uuid in out)
                for uuid, reading in named.items()
            }
        strangers = {uuid: stranger_words(each, name_and_user) for uuid, each in self._suspicions.items()}
        ghosts = {uuid: ghost_words(each, named[uuid]) for uuid, each in self._suspicions.items() if uuid in named}
        self._alarms.tell("gpu-stranger", _of_each(strangers, named), now)
        self._alarms.tell("gpu-ghost", _of_each(ghosts, named), now)
        return {uuid: why for words in (ghosts, strangers) for uuid, why in words.items() if why}

    def _look_for_blindness(self, now: datetime) -> None:
        """Say so when nothing was read for too long, and take devices out of use that do not even fail."""
        assert self._began is not None
        dark = now - self._began
        if self._inventory is None or dark <= BLIND_INTERVALS * self._every:
            self._blind_cycles = 0
            if self._latest is not None or self._inventory is None:
                self._alarms.tell("fleet-blind", self._dark_words(now), now)
            return
        self._blind_cycles += 1
        if self._blind_cycles < BLIND_CYCLES:
            return
        why = self._told or "they do not answer"
        self._alarms.tell(
            "fleet-blind",
            f"The GPUs of {self._host} have not been readable since {self._began:%Y-%m-%d %H:%M} UTC: {why}. What they "
            "do is unknown meanwhile: no server is stopped for idleness by it, and no new one is placed there.",
            now,
        )
        if self._blind_cycles == BLIND_CYCLES and self._reader is not None:
            self._write(Unreachable("the devices do not answer"), now)

    def _dark_words(self, now: datetime) -> str:
        """Of devices that leases hold and that cannot be read, while others can; "" where there are none."""
        told = [
            f"{row.name} ({row.uuid}) has not been readable since {since:%Y-%m-%d %H:%M} UTC: {row.why}."
            for since, row in self._dark.values()
            if now - since > BLIND_INTERVALS * self._every
        ]
        if not told:
            return ""
        return f"{' '.join(told)} What its server does with it is unknown: that does not count as idle."


def _nameless_words(host: str, readings: Sequence[GpuReading]) -> str:
    nameless = [f"GPU {reading.position}: {reading.error}" for reading in readings if not reading.uuid]
    if not nameless:
        return ""
    return f"Devices of {host} are not used, because they do not tell who they are. {'; '.join(nameless)}."


def _of_each(words: Mapping[str, str], named: Mapping[str, GpuReading]) -> str:
    return " ".join(f"{named[uuid].name} ({uuid}): {why}." for uuid, why in words.items() if why and uuid in named)


def _without_orders(device: Device) -> Device:
    """The device without what a person ordered: the book keeps that beside the state which the agent sees, and the
    agent must not write it down as seen, or nobody could take the order back."""
    ordered = device.state in (DeviceState.DRAINING, DeviceState.QUARANTINED)
    return replace(device, state=DeviceState.OK, why="") if ordered else device


class _Reader(threading.Thread):
    def __init__(self, inventory: Inventory | None) -> None:
        super().__init__(name="devices", daemon=True)
        self._inventory = inventory
        self.found: tuple[GpuReading, ...] | Unreachable = Unreachable("the devices were not read")

    def run(self) -> None:
        try:
            self.found = () if self._inventory is None else self._inventory.read()
        except Exception as error:
            log.exception("The devices could not be read")
            self.found = Unreachable(f"the devices could not be read: {error}")


class Faults:
    """The hardware XIDs of devices, kept in the book so that a new agent knows them."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._last: dict[str, tuple[int, datetime] | None] = {}
        self._unwritten: deque[dict[str, object]] = deque(maxlen=MOST_UNWRITTEN)

    def take(self, readings: Iterable[GpuReading], now: datetime) -> None:
        """Take what the driver reported. It reports once: it is kept here until `write` has brought it to the book."""
        for reading in readings:
            for event in reading.events:
                told = xid.of(event.xid)
                log.warning("GPU %s reported %s, %d times", reading.uuid or reading.position, told, event.count)
                detail = {"device": reading.uuid, "position": reading.position, "xid": told.number, "words": told.words}
                more = {"application": told.application, "count": event.count, "gpu_instance": event.gpu_instance}
                self._unwritten.append({**detail, **more, "at": now.isoformat()})
                if not told.application and reading.uuid:
                    self._last[reading.uuid] = (told.number, now)

    def write(self) -> None:
        """Bring to the book what is not there yet."""
        while self._unwritten:
            detail = self._unwritten[0]
            if not detail["application"] and detail["device"]:
                fault = {"xid": detail["xid"], "at": detail["at"]}
                self._rows.set_meta(_key(str(detail["device"])), json.dumps(fault))
            self._rows.add_event(XID_EVENT, by="agent", detail=detail)
            self._unwritten.popleft()

    def standing(self, uuids: Iterable[str], now: datetime) -> dict[str, str]:
        """Why devices are under suspicion at `now`, by UUID. A moment ahead (the clock was set back) counts as well."""
        for uuid in uuids:
            if uuid not in self._last:
                self._last[uuid] = self._remembered(uuid)
        return {
            uuid: f"{xid.of(fault[0])} at {fault[1]:%Y-%m-%d %H:%M} UTC: it takes no new lease until it has been "
            f"quiet for {xid.CLEAN_AFTER // timedelta(minutes=1)} minutes"
            for uuid, fault in self._last.items()
            if fault is not None and now - fault[1] < xid.CLEAN_AFTER
        }

    def _remembered(self, uuid: str) -> tuple[int, datetime] | None:
        text = self._rows.meta(_key(uuid))
        if text is None:
            return None
        told = json.loads(text)
        return int(told["xid"]), datetime.fromisoformat(told["at"])


def _key(uuid: str) -> str:
    return f"xid:{uuid}"


class Alarms:
    """Raises and clears alerts of one host; writes only what changes, and once a minute what stands."""

    def __init__(self, alerts: Alerts | None, host: str) -> None:
        self._alerts = alerts
        self._host = host
        self._told: dict[str, tuple[str, datetime]] = {}

    def tell(self, kind: str, words: str, now: datetime) -> None:
        """The trouble in words; "" clears it."""
        before = self._told.get(kind)
        if before is not None and before[0] == words and (not words or not is_due(before[1], TELL_AGAIN, now)):
            return
        if self._alerts is not None:
            key = f"{kind}:{self._host}"
            if words:
                self._alerts.put(key, kind, words, {"host": self._host})
            else:
                self._alerts.clear(key)
        self._told[kind] = (words, now)
