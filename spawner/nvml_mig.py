"""One card that is divided: what MIG allows on it, what is there, and making it another layout. Calls of pynvml.

Calls may hang and may fail; they are made in a process that can be ended. Needs root. Whoever changes a layout has seen
to it that no server holds a part of the card: the driver refuses to end one that a program uses, and only that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from spawner import mig
from spawner.mig import Change, Layout, MigProfile, MigRefused, Placed

#: No card knows more kinds of parts, or more places for one.
MOST_PROFILES: Final = 64
MOST_PLACES: Final = 64

#: NVML: NOT_SUPPORTED, INVALID_ARGUMENT, NOT_FOUND, FUNCTION_NOT_FOUND: there is no such profile or instance.
_ABSENT: Final = frozenset({2, 3, 6, 13})
_WORDS: Final = {
    4: "only root may do this",
    19: "a program still uses it: end the servers and programs on this card first",
    23: "the card has no room for it there",
}
_NAME = re.compile(r"(?:MIG )?(\d+g\.\d+gb[\w+.]{0,24})")


class MigCard:
    """The card of a handle. `api` is the module pynvml; its `NVMLError` comes through where a question fails."""

    def __init__(self, api: Any, handle: Any) -> None:
        self._api = api
        self._handle = handle

    def profiles(self) -> dict[str, MigProfile]:
        """How parts of this card may be cut, by name; empty where the driver cannot tell. Variants with media engines
        of their own (`+me`, `+gfx`) stand beside the plain ones."""
        found = (self._profile(index) for index in range(getattr(self._api, "NVML_GPU_INSTANCE_PROFILE_COUNT", 18)))
        return mig.named(profile for profile in found if profile is not None)

    def _profile(self, index: int) -> MigProfile | None:
        info = self._asked(self._api.nvmlDeviceGetGpuInstanceProfileInfo, self._handle, index)
        if info is None:
            return None
        places = self._places(info.id)
        name = info.name.decode("ascii", "replace") if isinstance(info.name, bytes) else str(info.name)
        named = _NAME.fullmatch(name)
        if not places or named is None:
            return None
        starts = tuple(sorted(start for start, _size in places))
        size = places[0][1]
        return MigProfile(named[1], info.sliceCount, size, starts, info.id, info.memorySizeMB, info.instanceCount)

    def _places(self, number: int) -> list[tuple[int, int]]:
        """Start and size in slices of memory of every place that a profile may have."""
        room = (self._api.c_nvmlGpuInstancePlacement_t * MOST_PLACES)()
        count = self._api.c_uint(MOST_PLACES)
        done = self._asked(
            self._api.nvmlDeviceGetGpuInstancePossiblePlacements, self._handle, number, room, self._api.byref(count)
        )
        return [] if done is None else [(each.start, each.size) for each in room[: count.value]]

    def present(self) -> Layout:
        """The parts that are there. A GPU instance without its compute instance is one: it takes its place."""
        return frozenset(Placed(name, start) for name, start, _instance in self._instances())

    def complete(self) -> bool:
        """Whether each part can be used: has a compute instance."""
        return all(self._compute(instance) is not None for _name, _start, instance in self._instances())

    def _instances(self) -> Iterator[tuple[str, int, Any]]:
        for profile in self.profiles().values():
            room = (self._api.c_nvmlGpuInstance_t * max(1, profile.most))()
            count = self._api.c_uint(len(room))
            self._api.nvmlDeviceGetGpuInstances(self._handle, profile.number, room, self._api.byref(count))
            for instance in list(room)[: count.value]:
                yield profile.name, self._api.nvmlGpuInstanceGetInfo(instance).placement.start, instance

    def become(self, desired: Layout) -> Change:
        """Make the layout the desired one: what is there and wanted stays; what was done.

        Raises `MigRefused` with words for whoever asked: MIG is off, the layout does not fit, a part is in use, no
        rights. Then what was done so far stays done; asking again goes on from there.
        """
        self._must_be_divided()
        profiles = self.profiles()
        if not mig.fits(desired, profiles):
            known = ", ".join(sorted(profiles)) or "none that the driver tells"
            raise MigRefused(f"this card cannot be divided into {mig.show(desired)}; its profiles: {known}")
        change = mig.transitions(self.present(), desired)
        for part in change.destroy:
            self._do(f"{part} cannot be removed", lambda part=part: self._remove(part))
        for part in change.create:
            self._do(f"{part} cannot be made", lambda part=part: self._make(profiles[part.profile], part))
        for name, start, instance in list(self._instances()):  # one that was left half made
            if self._compute(instance) is None:
                self._do(f"{name}@{start} cannot be made", lambda instance=instance: self._fill(instance))
        return change

    def _must_be_divided(self) -> None:
        modes = self._asked(self._api.nvmlDeviceGetMigMode, self._handle)
        if modes is None:
            raise MigRefused("this card cannot be divided by MIG")
        if modes[0] != 1:
            why = "MIG is to be switched on at the card's next reset: reset it (nvidia-smi -r) or reboot this host"
            raise MigRefused(why if modes[1] == 1 else "MIG is off on this card: switch it on (nvidia-smi -mig 1)")

    def _remove(self, part: Placed) -> None:
        for name, start, instance in list(self._instances()):
            if Placed(name, start) == part:
                compute = self._compute(instance)
                if compute is not None:
                    self._api.nvmlComputeInstanceDestroy(compute)
                self._api.nvmlGpuInstanceDestroy(instance)
                return

    def _make(self, profile: MigProfile, part: Placed) -> None:
        place = self._api.c_nvmlGpuInstancePlacement_t(part.start, profile.memory)
        instance = self._api.nvmlDeviceCreateGpuInstanceWithPlacement(
            self._handle, profile.number, self._api.byref(place)
        )
        self._fill(instance)

    def _fill(self, instance: Any) -> None:
        """A compute instance that takes all of it."""
        found: tuple[int, int] | None = None
        for index in range(getattr(self._api, "NVML_COMPUTE_INSTANCE_PROFILE_COUNT", 9)):
            info = self._asked(self._api.nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, index, 0)
            if info is not None and (found is None or info.sliceCount > found[0]):
                found = (info.sliceCount, info.id)
        if found is None:
            raise MigRefused("the driver tells no compute instance for it")
        self._api.nvmlGpuInstanceCreateComputeInstance(instance, found[1])

    def _compute(self, instance: Any) -> Any:
        return self._asked(self._api.nvmlGpuInstanceGetComputeInstanceById, instance, 0)

    def _asked(self, function: Any, *arguments: Any) -> Any:
        """None where there is no such thing; other errors come through."""
        try:
            return function(*arguments)
        except self._api.NVMLError as error:
            if error.value in _ABSENT:
                return None
            raise

    def _do(self, words: str, deed: Any) -> None:
        try:
            deed()
        except self._api.NVMLError as error:
            raise MigRefused(f"{words}: {_WORDS.get(error.value, str(error))}") from error
