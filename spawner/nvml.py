"""The devices of this host as NVIDIA's driver tells of them, through NVML. The only file that imports pynvml.

A call into a driver can hang for ever, and a card can fall off the bus. Each device is therefore asked in a thread of
its own with a time-out, and fails alone. A thread that hangs cannot be ended: it is waited for, and until it returns
its device is reported as silent at once and gets no second thread. `spawner.nvml_process` runs all this in a process
that can be ended, which is what the agent uses.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from quota.errors import BerthError
from spawner.nvml_card import GPU_IS_LOST, Card, Watched, gathered
from spawner.ports import GpuEvent, GpuReading, Unreachable

#: As pynvml opens it.
LIBRARY = "libnvidia-ml.so.1"

#: Seconds for one device to answer, and for the driver to start (slow on a host with many cards at rest).
DEVICE_TIMEOUT_S = 5.0
DRIVER_TIMEOUT_S = 30.0
#: No host has more; a driver that says so does not work.
MOST_DEVICES = 256

#: What cannot be done without. Another module of that name (there are several on PyPI) may lack some.
_NEEDED = (
    "NVMLError",
    "nvmlInit",
    "nvmlShutdown",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlEventSetWait_v2",
    "nvmlMemory_v2",
)

T = TypeVar("T")


class ForeignModule(BerthError):
    """The module `pynvml` in this environment is not the one of nvidia-ml-py."""


@dataclass(frozen=True, slots=True)
class _Identity:
    uuid: str
    name: str
    memory_mib: int | None


class _Silent(Exception):
    """No answer in time."""


class _Probe(Generic[T]):
    """Calls that may hang, at most one at a time. Not for use from several threads at once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._call: _Call[T] | None = None

    @property
    def busy(self) -> bool:
        """Whether a call has not come back yet."""
        return self._call is not None and not self._call.done.is_set()

    def ask(self, function: Callable[[], T]) -> _Call[T] | None:
        """Start the call in a thread; None while an earlier one still hangs."""
        if self.busy:
            return None
        self._call = _Call(function)
        threading.Thread(target=self._call.run, name=self._name, daemon=True).start()
        return self._call


class _Call(Generic[T]):
    def __init__(self, function: Callable[[], T]) -> None:
        self.done = threading.Event()
        self._function = function
        self._value: T | None = None
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._value = self._function()
        except Exception as error:  # whatever the driver or its binding says goes to whoever waits
            self._error = error
        finally:
            self.done.set()

    def result(self, deadline: float) -> T:
        """The value, or the call's own error; `_Silent` when `deadline` (monotonic) passes first."""
        if not self.done.wait(max(0.0, deadline - time.monotonic())):
            raise _Silent
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]


class NvmlInventory:
    """Reads the devices of this host in this process; `detect` makes one.

    `api` is the module pynvml. Positions are NVML's indices: they may change when the driver starts anew, so they are
    for people alone. A device that fails before it ever told its UUID has "" for one.
    """

    simulated = False

    def __init__(
        self, api: Any, *, device_timeout_s: float = DEVICE_TIMEOUT_S, driver_timeout_s: float = DRIVER_TIMEOUT_S
    ) -> None:
        self._api = api
        self._device_timeout_s = device_timeout_s
        self._driver_timeout_s = driver_timeout_s
        self._driver: _Probe[int] = _Probe("nvml-driver")
        self._devices: dict[int, _Probe[list[GpuReading]]] = {}
        self._watched: dict[int, Watched] = {}  # by position; each is touched by its device's thread alone
        self._sampled: dict[int, int | None] = {}  # likewise: the stamp of the newest sample of a program
        self._seen: dict[int, _Identity] = {}
        self._initialised = False
        self._shut_down_first = False
        self._ill = False
        self._lock = threading.Lock()

    @classmethod
    def detect(
        cls, *, device_timeout_s: float = DEVICE_TIMEOUT_S, driver_timeout_s: float = DRIVER_TIMEOUT_S
    ) -> NvmlInventory | None:
        """An inventory where this host has NVIDIA's driver library, else None. The driver itself is not asked yet.

        A driver that is there and does not work gives an inventory whose `read` is `Unreachable`, with the reason: such
        a host must not be taken for one without GPUs. Raises `ForeignModule`.
        """
        try:
            ctypes.CDLL(LIBRARY)
        except OSError:
            return None
        return cls(load(), device_timeout_s=device_timeout_s, driver_timeout_s=driver_timeout_s)

    @property
    def silent(self) -> int:
        """Devices whose call hangs now."""
        return sum(probe.busy for probe in self._devices.values())

    @property
    def stuck(self) -> bool:
        """Whether a call that hangs keeps the driver from being asked anew: only another process can."""
        return self._driver.busy or (self._ill and self.silent > 0)

    def read(self) -> tuple[GpuReading, ...] | Unreachable:
        """All devices by position; takes as long as the slowest, at most the two time-outs."""
        with self._lock:
            count = self._ask_driver()
            self._ill = isinstance(count, Unreachable)
            if isinstance(count, Unreachable):
                return count
            return self._known_again(_without_twins(self._ask_devices(count)))

    def _ask_driver(self) -> int | Unreachable:
        call = self._driver.ask(self._count)
        try:
            if call is None:
                raise _Silent
            return call.result(time.monotonic() + self._driver_timeout_s)
        except _Silent:
            return Unreachable(f"the NVIDIA driver did not answer within {self._driver_timeout_s:g} s")
        except Exception as error:
            self._start_anew()
            return Unreachable(f"the NVIDIA driver does not work: {self._words(error)}")

    def _start_anew(self) -> None:
        """Start NVML again at the next read: the driver may have been loaded anew. Not while a thread still uses it."""
        if self._initialised and not self.silent:
            self._shut_down_first = True
            self._initialised = False
            self._watched.clear()
            self._sampled.clear()

    def _count(self) -> int:
        if self._shut_down_first:
            with suppress(self._api.NVMLError):
                self._api.nvmlShutdown()
            self._shut_down_first = False
        if not self._initialised:
            self._api.nvmlInit()
            self._initialised = True
        count = int(self._api.nvmlDeviceGetCount())
        if not 0 <= count <= MOST_DEVICES:
            raise ValueError(f"it tells of {count} devices")
        return count

    def _ask_devices(self, count: int) -> list[GpuReading]:
        calls = []
        for position in range(count):
            probe = self._devices.setdefault(position, _Probe(f"nvml-{position}"))
            calls.append(probe.ask(lambda position=position: self._one(position)))  # type: ignore[misc]
        deadline = time.monotonic() + self._device_timeout_s
        return [reading for place, call in enumerate(calls) for reading in self._answer(place, call, deadline)]

    def _answer(self, position: int, call: _Call[list[GpuReading]] | None, deadline: float) -> list[GpuReading]:
        try:
            if call is None:
                raise _Silent
            return call.result(deadline)
        except _Silent:
            return [_failed(position, f"the device did not answer within {self._device_timeout_s:g} s")]
        except Exception as error:
            return [_failed(position, self._words(error))]

    def _known_again(self, readings: list[GpuReading]) -> tuple[GpuReading, ...]:
        """Failed readings with the identity they had at that position, unless another device answers to it now."""
        whole = [reading for reading in readings if reading.part is None]
        answering = {reading.uuid for reading in whole if reading.uuid}
        self._seen = {where: seen for where, seen in self._seen.items() if seen.uuid not in answering}
        for reading in whole:
            if reading.uuid and not reading.error:
                self._seen[reading.position] = _Identity(reading.uuid, reading.name, reading.memory_mib)
        for place, reading in enumerate(readings):
            seen = self._seen.get(reading.position)
            if reading.error and not reading.uuid and seen is not None and seen.uuid not in answering:
                readings[place] = replace(reading, uuid=seen.uuid, name=seen.name, memory_mib=seen.memory_mib)
        return tuple(readings)

    def _one(self, position: int) -> list[GpuReading]:
        """One card with its parts. What it reported last is told even where it answers no more."""
        watched = self._watched.get(position)
        events = gathered(self._api, watched) if watched is not None else ()
        try:
            found = self._whole(position, watched)
        except Exception as error:
            lost = getattr(error, "value", None) == GPU_IS_LOST
            return [replace(_failed(position, self._words(error), lost=lost), events=events)]
        return [replace(found[0], events=events + found[0].events), *found[1:]]

    def _whole(self, position: int, watched: Watched | None) -> list[GpuReading]:
        handle = self._api.nvmlDeviceGetHandleByIndex(position)
        card = Card(self._api, handle, position, self._sampled.get(position))
        uuid = card.uuid()
        events: tuple[GpuEvent, ...] = ()
        if watched is None or watched.uuid != uuid:
            watched = card.watch(uuid)
            if watched is not None:
                self._watched[position] = watched
                events = gathered(self._api, watched)
        first, *parts = card.readings(uuid)
        self._sampled[position] = card.sampled
        return [replace(first, events=events), *parts]

    def _words(self, error: Exception) -> str:
        if isinstance(error, self._api.NVMLError):
            hint = _HINTS.get(error.value, "")
            return f"{str(error).rstrip('.')}{hint}"
        return str(error) or type(error).__name__


_HINTS = {
    4: " (this system user may not open /dev/nvidia*)",
    9: " (the kernel module is not loaded: `modprobe nvidia`, or reboot after an upgrade)",
    12: " (libnvidia-ml.so.1)",
    GPU_IS_LOST: " (it fell off the bus; the host must be rebooted or the card reset)",
    18: " (the driver was upgraded while the old one runs: reboot this host)",
}


def load() -> Any:
    """The module pynvml of nvidia-ml-py. Raises `ForeignModule` for any other, or none."""
    remedy = "run: pip uninstall pynvml; pip install --force-reinstall nvidia-ml-py"
    try:
        import pynvml
    except Exception as error:  # a foreign module may fail in any way
        raise ForeignModule(f"the Python module pynvml cannot be imported ({error}); {remedy}") from error
    missing = [name for name in _NEEDED if not hasattr(pynvml, name)]
    if missing:
        where = getattr(pynvml, "__file__", None) or "unknown"
        raise ForeignModule(
            f"the Python module pynvml ({where}) is not NVIDIA's: it lacks {', '.join(missing)}; {remedy}"
        )
    return pynvml


def _failed(position: int, error: str, *, lost: bool = False) -> GpuReading:
    return GpuReading("", position, "", None, None, None, simulated=False, error=error, lost=lost)


def _without_twins(readings: list[GpuReading]) -> list[GpuReading]:
    """Devices of one UUID cannot be told apart, not by CUDA either: they are one that failed, others without it."""
    told = Counter(reading.uuid for reading in readings if reading.uuid)
    met: set[str] = set()
    found = []
    for reading in readings:
        if told[reading.uuid] > 1:
            words = f"{told[reading.uuid]} devices tell the same UUID {reading.uuid}"
            first = reading.uuid not in met
            met.add(reading.uuid)
            failed = replace(_failed(reading.position, words), events=reading.events, part=reading.part)
            reading = replace(failed, uuid=reading.uuid, name=reading.name) if first else failed
        found.append(reading)
    return found
