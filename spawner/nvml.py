"""The devices of this host as NVIDIA's driver tells of them, through NVML. The only file that imports pynvml.

A call into a driver can hang for ever, and a card can fall off the bus. Each device is therefore asked in a thread of
its own with a time-out, and fails alone. A thread that hangs cannot be ended: it is waited for, and until it returns
its device is reported as silent at once and gets no second thread.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from quota.errors import BerthError
from spawner.ports import GpuReading, Unreachable

#: Seconds for one device to answer, and for the driver to start (slow on a host with many cards at rest).
DEVICE_TIMEOUT_S = 5.0
DRIVER_TIMEOUT_S = 30.0

#: No card is smaller or larger, bytes; what lies outside is a driver's way of saying that it does not know.
MEMORY_BOUNDS = (1 << 20, 1 << 44)

#: What is used of pynvml. Another module of that name (there are several on PyPI) may lack some.
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
    "nvmlMemory_v2",
    "NVML_ERROR_LIBRARY_NOT_FOUND",
)

_UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,79}")

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
    """Reads the devices of this host; `detect` makes one.

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
        self._devices: dict[int, _Probe[GpuReading]] = {}
        self._seen: dict[int, _Identity] = {}
        self._initialised = False
        self._shut_down_first = False
        self._lock = threading.Lock()

    @classmethod
    def detect(
        cls, *, device_timeout_s: float = DEVICE_TIMEOUT_S, driver_timeout_s: float = DRIVER_TIMEOUT_S
    ) -> NvmlInventory | None:
        """An inventory where this host has NVIDIA's driver library, else None.

        A driver that is there and does not work gives an inventory whose `read` is `Unreachable`, with the reason: such
        a host must not be taken for one without GPUs. Raises `ForeignModule`.
        """
        inventory = cls(load(), device_timeout_s=device_timeout_s, driver_timeout_s=driver_timeout_s)
        return None if inventory._library_missing() else inventory

    def _library_missing(self) -> bool:
        call = self._driver.ask(self._count)
        try:
            if call is not None:
                call.result(time.monotonic() + self._driver_timeout_s)
        except _Silent:
            return False
        except self._api.NVMLError as error:
            return bool(error.value == self._api.NVML_ERROR_LIBRARY_NOT_FOUND)
        except Exception:
            return False  # `read` meets it again and tells
        return False

    def read(self) -> tuple[GpuReading, ...] | Unreachable:
        """All devices by position; takes as long as the slowest, at most the two time-outs."""
        with self._lock:
            count = self._ask_driver()
            if isinstance(count, Unreachable):
                return count
            return self._known_again(self._ask_devices(count))

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
        if self._initialised and not any(probe.busy for probe in self._devices.values()):
            self._shut_down_first = True
            self._initialised = False

    def _count(self) -> int:
        if self._shut_down_first:
            with suppress(self._api.NVMLError):
                self._api.nvmlShutdown()
            self._shut_down_first = False
        if not self._initialised:
            self._api.nvmlInit()
            self._initialised = True
        return int(self._api.nvmlDeviceGetCount())

    def _ask_devices(self, count: int) -> list[GpuReading]:
        calls = []
        for position in range(count):
            probe = self._devices.setdefault(position, _Probe(f"nvml-{position}"))
            calls.append(probe.ask(lambda position=position: self._one(position)))  # type: ignore[misc]
        deadline = time.monotonic() + self._device_timeout_s
        return [self._answer(position, call, deadline) for position, call in enumerate(calls)]

    def _answer(self, position: int, call: _Call[GpuReading] | None, deadline: float) -> GpuReading:
        try:
            if call is None:
                raise _Silent
            reading = call.result(deadline)
        except _Silent:
            return _failed(position, f"the device did not answer within {self._device_timeout_s:g} s")
        except Exception as error:
            return _failed(position, self._words(error), lost=getattr(error, "value", None) == _GPU_IS_LOST)
        self._seen = {where: seen for where, seen in self._seen.items() if seen.uuid != reading.uuid}
        self._seen[position] = _Identity(reading.uuid, reading.name, reading.memory_mib)
        return reading

    def _known_again(self, readings: list[GpuReading]) -> tuple[GpuReading, ...]:
        """Failed readings with the identity they had at that position, unless another device answers to it now."""
        taken: set[str] = set()
        for place, reading in enumerate(readings):
            if not reading.error and reading.uuid in taken:
                readings[place] = _failed(reading.position, f"another device has the same UUID {reading.uuid}")
            taken.add(reading.uuid)
        for place, reading in enumerate(readings):
            seen = self._seen.get(reading.position)
            if reading.error and seen is not None and seen.uuid not in taken:
                readings[place] = replace(reading, uuid=seen.uuid, name=seen.name, memory_mib=seen.memory_mib)
        return tuple(readings)

    def _one(self, position: int) -> GpuReading:
        api = self._api
        handle = api.nvmlDeviceGetHandleByIndex(position)
        uuid = api.nvmlDeviceGetUUID(handle)
        if not isinstance(uuid, str) or not _UUID.fullmatch(uuid):
            raise ValueError("the device tells no usable UUID")
        name = self._optional(api.nvmlDeviceGetName, handle)
        total, used = _memory(self._memory_info(handle))
        rates = self._optional(api.nvmlDeviceGetUtilizationRates, handle)
        utilisation = None if rates is None else int(rates.gpu)
        return GpuReading(
            uuid=uuid,
            position=position,
            name=_printable(name),
            memory_mib=total,
            memory_used_mib=used,
            utilisation=utilisation if utilisation is not None and 0 <= utilisation <= 100 else None,
            simulated=False,
        )

    def _memory_info(self, handle: Any) -> Any:
        """Version 2 tells used memory without what the driver keeps for itself; old drivers have version 1 only."""
        new = self._optional(self._api.nvmlDeviceGetMemoryInfo, handle, self._api.nvmlMemory_v2)
        return new if new is not None else self._optional(self._api.nvmlDeviceGetMemoryInfo, handle)

    def _optional(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The call's value, None where this card or driver cannot tell; other errors are the device's."""
        try:
            return function(*arguments)
        except UnicodeDecodeError:
            return None
        except self._api.NVMLError as error:
            if error.value in _CANNOT_TELL:
                return None
            raise

    def _words(self, error: Exception) -> str:
        if isinstance(error, self._api.NVMLError):
            hint = _HINTS.get(error.value, "")
            return f"{str(error).rstrip('.')}{hint}"
        return str(error) or type(error).__name__


#: NVML's return codes (nvml.h): NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, FUNCTION_NOT_FOUND, NO_DATA,
#: ARGUMENT_VERSION_MISMATCH, DEPRECATED, NOT_READY.
_CANNOT_TELL = frozenset({3, 4, 6, 13, 21, 25, 26, 27})

#: The card answers no more until it is reset or the host rebooted.
_GPU_IS_LOST = 15

_HINTS = {
    9: " (the kernel module is not loaded: `modprobe nvidia`, or reboot after an upgrade)",
    12: " (libnvidia-ml.so.1)",
    _GPU_IS_LOST: " (it fell off the bus; the host must be rebooted or the card reset)",
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


def _printable(name: object) -> str:
    text = name if isinstance(name, str) else ""
    return "".join(sign for sign in text if sign.isprintable()).strip()[:96] or "NVIDIA GPU"


def _memory(info: Any) -> tuple[int | None, int | None]:
    """Total and used memory in MiB; None for what is impossible."""
    if info is None:
        return None, None
    total, used = int(info.total), int(info.used)
    low, high = MEMORY_BOUNDS
    if not low <= total <= high:
        return None, None
    return total >> 20, used >> 20 if 0 <= used <= total else None
