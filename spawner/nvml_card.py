"""One card as NVML tells of it: calls of pynvml in, readings out. What a card, a driver or its binding cannot tell is
None, and so is what is impossible: a utilisation above 100, more memory in use than there is, a number of all ones.

Calls may hang and may fail; `spawner.nvml` makes them in a thread for each card.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from spawner.ports import GpuEvent, GpuProcess, GpuReading, MemoryHealth, MigPart

#: No card is smaller or larger, bytes; what lies outside is a driver's way of saying that it does not know.
MEMORY_BOUNDS: Final = (1 << 20, 1 << 44)
#: Degrees Celsius that a card which still answers can have.
TEMPERATURE_BOUNDS: Final = (1, 150)
#: More errors than these were never counted.
MOST_ERRORS: Final = 1 << 48
#: Events taken at one read; a storm of them is told by its number.
MOST_EVENTS: Final = 1000

#: NVML's return codes (nvml.h): NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, FUNCTION_NOT_FOUND, NO_DATA,
#: ARGUMENT_VERSION_MISMATCH, DEPRECATED, NOT_READY.
CANNOT_TELL: Final = frozenset({3, 4, 6, 13, 21, 25, 26, 27})
NOT_FOUND: Final = 6
#: GPU_IS_LOST: the card answers no more until it is reset or the host rebooted.
GPU_IS_LOST: Final = 15
#: UNINITIALIZED, GPU_IS_LOST, RESET_REQUIRED: trouble of the card whatever was asked.
_OF_THE_CARD: Final = frozenset({1, GPU_IS_LOST, 16})

_UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,79}")
_PROFILE = re.compile(r"(?:\d+c\.)?\d+g\.\d+gb[\w+.]{0,24}")
#: NVML_GPU_INSTANCE_ID_ANY: no MIG instance is meant.
_NO_INSTANCE = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Watched:
    """The set in which the driver gathers the events of one card."""

    uuid: str
    events: Any


class Card:
    """The card of one handle. `api` is the module pynvml. Methods raise its `NVMLError`.

    `sampled` is the driver's own stamp (microseconds) of the newest sample of a program that was ever read, 0 where
    there was none; None before the first read.
    """

    def __init__(self, api: Any, handle: Any, position: int, sampled: int | None = None) -> None:
        self._api = api
        self._handle = handle
        self._position = position
        self.sampled = sampled
        #: What pynvml raises for functions with versions that the driver's library does not have; no `NVMLError`.
        self._too_old: type[Exception] = getattr(api, "NVMLLibraryMismatchError", UnicodeDecodeError)

    def uuid(self) -> str:
        """Raises `ValueError` for what could not stand in an environment variable."""
        uuid = self._api.nvmlDeviceGetUUID(self._handle)
        if not isinstance(uuid, str) or not _UUID.fullmatch(uuid):
            raise ValueError("the device tells no usable UUID")
        return uuid

    def readings(self, uuid: str) -> list[GpuReading]:
        """The card, and where it is divided by MIG, its parts after it."""
        total, used = self._memory(self._handle)
        mig, pending = self._mig_mode()
        name = _printable(self._maybe("nvmlDeviceGetName", self._handle))
        busy, moving = self._utilisation()
        card = GpuReading(
            uuid=uuid,
            position=self._position,
            name=name,
            memory_mib=total,
            memory_used_mib=used,
            utilisation=busy,
            simulated=False,
            temperature_c=self._temperature(),
            processes=self._processes(),
            health=self._health(),
            mig=mig,
            mig_pending=pending,
            memory_utilisation=moving,
        )
        return [card, *self._parts(card)] if mig else [card]

    # ---- single values -----------------------------------------------------------------------------------------

    def _utilisation(self) -> tuple[int | None, int | None]:
        """Of the card and of its memory."""
        rates = self._maybe("nvmlDeviceGetUtilizationRates", self._handle)
        return (None, None) if rates is None else (_between(rates.gpu, 0, 100), _between(rates.memory, 0, 100))

    def _memory(self, handle: Any) -> tuple[int | None, int | None]:
        """Total and used, MiB. Version 2 leaves out what the driver keeps for itself; old drivers have version 1."""
        info = self._maybe("nvmlDeviceGetMemoryInfo", handle, getattr(self._api, "nvmlMemory_v2", None))
        return memory_mib(info if info is not None else self._maybe("nvmlDeviceGetMemoryInfo", handle))

    def _temperature(self) -> int | None:
        return _between(self._aside("nvmlDeviceGetTemperature", self._handle, 0), *TEMPERATURE_BOUNDS)

    def _processes(self) -> tuple[GpuProcess, ...] | None:
        """None where neither list can be read; a driver without graphics still has the other."""
        found: list[GpuProcess] = []
        known = False
        samples = self._samples()
        for graphics, name in enumerate(
            ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")
        ):
            listed = self._aside(name, self._handle)
            if listed is not None:
                known = True
                found += [_process(process, samples, graphics=bool(graphics)) for process in listed]
        return tuple(found) if known else None

    def _samples(self) -> dict[int, tuple[int | None, int | None]] | None:
        """What programs did since the read before, percent of compute and memory by pid; None where nobody can tell.

        The driver keeps samples for some seconds and gives those newer than a stamp; NOT_FOUND is its word for none,
        which means that no program computed. What the first read finds may be of long ago.
        """
        function = getattr(self._api, "nvmlDeviceGetProcessUtilization", None)
        first, since = self.sampled is None, self.sampled or 0
        if function is None:
            return None
        try:
            samples = function(self._handle, since)
        except self._too_old:
            return None
        except self._api.NVMLError as error:
            if error.value in _OF_THE_CARD:
                raise
            if error.value != NOT_FOUND:
                return None
            samples, first = [], False
        found = {}
        for sample in sorted(samples, key=lambda each: int(each.timeStamp)):
            found[int(sample.pid)] = (_between(sample.smUtil, 0, 100), _between(sample.memUtil, 0, 100))
            since = max(since, int(sample.timeStamp))
        self.sampled = since
        return None if first else found

    def _health(self) -> MemoryHealth:
        ask = "nvmlDeviceGetTotalEccErrors"
        counts = [
            _between(self._maybe(ask, self._handle, kind, counter), 0, MOST_ERRORS)
            for kind in (0, 1)  # NVML_MEMORY_ERROR_TYPE_CORRECTED, _UNCORRECTED
            for counter in (0, 1)  # NVML_VOLATILE_ECC, NVML_AGGREGATE_ECC
        ]
        rows = self._maybe("nvmlDeviceGetRemappedRows", self._handle)
        if rows is not None:  # Ampere and later; cards before it retire pages
            pending, failed = rows[2] == 1, rows[3] == 1
            return MemoryHealth(counts[0], counts[2], counts[1], counts[3], pending, failed)
        pages = self._maybe("nvmlDeviceGetRetiredPagesPendingStatus", self._handle)
        waiting = None if pages is None else pages == 1
        return MemoryHealth(counts[0], counts[2], counts[1], counts[3], waiting, None)

    # ---- MIG ---------------------------------------------------------------------------------------------------

    def _mig_mode(self) -> tuple[bool | None, bool | None]:
        modes = self._maybe("nvmlDeviceGetMigMode", self._handle)
        return (None, None) if modes is None else (modes[0] == 1, modes[1] == 1)

    def _parts(self, card: GpuReading) -> list[GpuReading]:
        number = _between(self._maybe("nvmlDeviceGetMaxMigDeviceCount", self._handle), 0, 64) or 0
        found = []
        for index in range(number):
            handle = self._maybe("nvmlDeviceGetMigDeviceHandleByIndex", self._handle, index)
            if handle is not None:
                found.append(self._part(card, handle))
        return sorted(found, key=lambda reading: reading.uuid)

    def _part(self, card: GpuReading, handle: Any) -> GpuReading:
        """A MIG device under a key that outlives it: UUIDs of parts change when these are made anew, and they are made
        anew at every boot (NVIDIA MIG user guide: instances are not persistent)."""
        mig_uuid = self._maybe("nvmlDeviceGetUUID", handle)
        instance = self._maybe("nvmlDeviceGetGpuInstanceId", handle)
        compute = self._maybe("nvmlDeviceGetComputeInstanceId", handle)
        profile = self._profile(handle)
        start, size = (None, None) if instance is None else self._place(instance)
        place = str(start) if start is not None else f"gi{'?' if instance is None else instance}"
        more = f".{compute}" if compute else ""
        total, used = self._memory(handle)
        return GpuReading(
            uuid=f"{card.uuid}:{profile}:{place}{more}",
            position=card.position,
            name=f"{card.name.removesuffix(' MIG')} MIG {profile}",
            memory_mib=total,
            memory_used_mib=used,
            utilisation=None,  # NVML has none for parts
            simulated=False,
            part=MigPart(
                card.uuid,
                profile,
                start,
                -1 if instance is None else instance,
                compute or 0,
                mig_uuid if isinstance(mig_uuid, str) and _UUID.fullmatch(mig_uuid) else "",
                size,
            ),
        )

    def _profile(self, handle: Any) -> str:
        """The driver puts it at the end of a part's name; else it is put together from slices and memory."""
        name = self._maybe("nvmlDeviceGetName", handle)
        found = _PROFILE.findall(name.rpartition("MIG ")[2]) if isinstance(name, str) else []
        if found:
            return str(found[0])
        told = self._maybe("nvmlDeviceGetAttributes", handle)
        return "unknown" if told is None else f"{told.gpuInstanceSliceCount}g.{round(told.memorySizeMB / 1024)}gb"

    def _place(self, instance: int) -> tuple[int | None, int | None]:
        """Where the part's memory begins and how long it is, in memory slices. Only the superuser may see instances on
        some hosts."""
        found = self._maybe("nvmlDeviceGetGpuInstanceById", self._handle, instance)
        told = None if found is None else self._maybe("nvmlGpuInstanceGetInfo", found)
        if told is None:
            return None, None
        return _between(told.placement.start, 0, 63), _between(told.placement.size, 1, 64)

    # ---- events ------------------------------------------------------------------------------------------------

    def watch(self, uuid: str) -> Watched | None:
        """Have the driver gather this card's XIDs; None where it cannot."""
        kinds = self._aside("nvmlDeviceGetSupportedEventTypes", self._handle)
        wanted = (kinds or 0) & self._api.nvmlEventTypeXidCriticalError
        events = self._aside("nvmlEventSetCreate") if wanted else None
        if events is None:
            return None
        try:
            self._api.nvmlDeviceRegisterEvents(self._handle, wanted, events)
        except self._api.NVMLError as error:
            self._aside("nvmlEventSetFree", events)
            if error.value in _OF_THE_CARD:
                raise
            return None
        return Watched(uuid, events)

    # ---- calls -------------------------------------------------------------------------------------------------

    def _maybe(self, name: str, *arguments: Any) -> Any:
        """The call's value, None where this card, driver or binding cannot tell; other errors are the card's."""
        function: Callable[..., Any] | None = getattr(self._api, name, None)
        if function is None or None in arguments:
            return None
        try:
            return function(*arguments)
        except (UnicodeDecodeError, self._too_old):
            return None
        except self._api.NVMLError as error:
            if error.value in CANNOT_TELL:
                return None
            raise

    def _aside(self, name: str, *arguments: Any) -> Any:
        """The same for what the card can be used without: only an error of the card itself is raised."""
        try:
            return self._maybe(name, *arguments)
        except self._api.NVMLError as error:
            if error.value in _OF_THE_CARD:
                raise
            return None


def gathered(api: Any, watched: Watched) -> tuple[GpuEvent, ...]:
    """The XIDs that came since the last call. Their card may be lost by now; they are told all the same."""
    counts: dict[tuple[int, int | None], int] = {}
    for _ in range(MOST_EVENTS):
        try:
            event = api.nvmlEventSetWait_v2(watched.events, 0)
        except api.NVMLError:  # a time-out: there are no more
            break
        if event.eventType == api.nvmlEventTypeXidCriticalError:
            instance = None if event.gpuInstanceId == _NO_INSTANCE else int(event.gpuInstanceId)
            key = (int(event.eventData), instance)
            counts[key] = counts.get(key, 0) + 1
    return tuple(GpuEvent(xid, count, instance) for (xid, instance), count in counts.items())


def memory_mib(info: Any) -> tuple[int | None, int | None]:
    """Total and used memory in MiB of what NVML tells in bytes; None for what is impossible."""
    if info is None:
        return None, None
    total, used = int(info.total), int(info.used)
    low, high = MEMORY_BOUNDS
    if not low <= total <= high:
        return None, None
    return total >> 20, used >> 20 if 0 <= used <= total else None


def _process(process: Any, samples: dict[int, tuple[int | None, int | None]] | None, *, graphics: bool) -> GpuProcess:
    """A program without a sample has not computed, where there are samples at all."""
    used, pid = process.usedGpuMemory, int(process.pid)
    known = isinstance(used, int) and 0 <= used <= MEMORY_BOUNDS[1]
    util, moving = (None, None) if samples is None else samples.get(pid, (0, 0))
    return GpuProcess(pid, used >> 20 if known else None, graphics, util, moving)


def _between(value: Any, low: int, high: int) -> int | None:
    return int(value) if value is not None and low <= int(value) <= high else None


def _printable(name: object) -> str:
    text = name if isinstance(name, str) else ""
    return "".join(sign for sign in text if sign.isprintable()).strip()[:96] or "NVIDIA GPU"
