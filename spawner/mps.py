"""MPS: one daemon for each GPU, what it is told, and what a server's container needs of it. Pure.

NVIDIA's limits hold for each process. What a client sets in its environment can only lower what the daemon was told,
so the daemon is told the largest share that a lease of this device may have. Servers of one GPU share `/dev/shm`: they
must belong to one account and run as one system user.

NVIDIA's documentation says all this (docs.nvidia.com/deploy/mps); no real GPU has been behind it here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from quota.leases import Device, Slot
from quota.units import WHOLE_GPU
from spawner.box import MIB, Mount

#: Where a container sees the pipes of the daemon; CUDA's own default.
PIPES_INSIDE: Final = "/tmp/nvidia-mps"
#: More clients than that a GPU refuses, since Volta.
MOST_CLIENTS: Final = 48
PROGRAM: Final = "nvidia-cuda-mps-control"


@dataclass(frozen=True, slots=True)
class MpsPlan:
    """The daemon of one GPU: folders of the host, the most memory (MiB) and threads (per cent) of each process, and the
    size of the shared memory that its clients have in common."""

    uuid: str
    pipes: str
    logs: str
    shm: str
    memory_mib: int
    threads: int
    shm_bytes: int

    @property
    def env(self) -> dict[str, str]:
        """What daemon and `control` commands are run with. The daemon sees its own GPU alone, as device 0."""
        return {
            "CUDA_VISIBLE_DEVICES": self.uuid,
            "CUDA_MPS_PIPE_DIRECTORY": self.pipes,
            "CUDA_MPS_LOG_DIRECTORY": self.logs,
        }

    @property
    def commands(self) -> tuple[str, ...]:
        """What it is told after it started, a line each, before a client may come."""
        return (
            f"set_default_device_pinned_mem_limit 0 {self.memory_mib}M",
            f"set_default_active_thread_percentage {self.threads}",
        )


def plan(root: str, device: Device, *, largest: int = WHOLE_GPU, shm_bytes: int = 1024 * MIB) -> MpsPlan:
    """The daemon of a device. `root` is a folder of the host, `largest` the largest share (milli-GPU) that a server may
    have of the device. Raises `ValueError` where the device's memory is unknown: there is nothing to limit then."""
    if device.memory_mib is None:
        raise ValueError(f"the memory of {device.uuid} is unknown, so that MPS could not limit it")
    folder = f"{root.rstrip('/')}/{device.uuid}"
    return MpsPlan(
        uuid=device.uuid,
        pipes=f"{folder}/pipe",
        logs=f"{folder}/log",
        shm=f"{folder}/shm",
        memory_mib=memory_of(device.memory_mib, largest),
        threads=threads_of(largest),
        shm_bytes=shm_bytes,
    )


def memory_of(memory_mib: int, share: int) -> int:
    """MiB of a share, cut: all shares together never exceed the device."""
    _check(share)
    return memory_mib * share // WHOLE_GPU


def threads_of(share: int) -> int:
    """Per cent of the device's threads, at least 1: MPS takes whole numbers from 1 to 100."""
    _check(share)
    return max(1, share * 100 // WHOLE_GPU)


def _check(share: int) -> None:
    if not 0 < share <= WHOLE_GPU:
        raise ValueError(f"{share} milli-GPU is no share of one GPU")


@dataclass(frozen=True, slots=True)
class MpsClient:
    """What a server needs to be a client of its GPU's daemon."""

    env: Mapping[str, str]
    mounts: tuple[Mount, ...]


def client(slot: Slot, device: Device, daemon: MpsPlan) -> MpsClient:
    """Environment and mounts of a server that holds `slot` of `device`.

    The limits name device 0, since a container sees its one GPU alone. `/dev/shm` is the daemon's, so that a box must
    not bring its own. Raises `ValueError` for a slot of another device, or where the device's memory is unknown.
    """
    if slot.device != device.uuid or daemon.uuid != device.uuid:
        raise ValueError(f"a slot of {slot.device} and a daemon of {daemon.uuid} do not fit {device.uuid}")
    if device.memory_mib is None:
        raise ValueError(f"the memory of {device.uuid} is unknown, so that MPS could not limit it")
    return MpsClient(
        env={
            "CUDA_MPS_PIPE_DIRECTORY": PIPES_INSIDE,
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={memory_of(device.memory_mib, slot.share)}M",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(threads_of(slot.share)),
        },
        mounts=(
            Mount(PIPES_INSIDE, source=daemon.pipes, kind="bind"),
            Mount("/dev/shm", source=daemon.shm, kind="bind"),
        ),
    )
