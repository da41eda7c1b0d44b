"""MPS as values: what the daemon is told, and what a container is given."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.leases import Device, DeviceState, Slot
from quota.units import MilliGpu
from spawner.box import Mount
from spawner.mps import client, memory_of, plan, threads_of

CARD = Device("here", "GPU-1", 3, "NVIDIA A10", 24576, "mps", False, DeviceState.OK)
shares = st.sampled_from([1, 3, 125, 250, 333, 500, 1000])


def test_a_daemon_has_its_own_gpu_and_its_own_folders() -> None:
    one, two = plan("/run/berth/mps/", CARD), plan("/run/berth/mps", replace(CARD, uuid="GPU-2"))
    assert one.env == {
        "CUDA_VISIBLE_DEVICES": "GPU-1",
        "CUDA_MPS_PIPE_DIRECTORY": "/run/berth/mps/GPU-1/pipe",
        "CUDA_MPS_LOG_DIRECTORY": "/run/berth/mps/GPU-1/log",
    }
    assert {one.pipes, one.logs, one.shm}.isdisjoint({two.pipes, two.logs, two.shm})


def test_a_daemon_is_told_the_largest_share() -> None:
    assert plan("/run", CARD, largest=500).commands == (
        "set_default_device_pinned_mem_limit 0 12288M",
        "set_default_active_thread_percentage 50",
    )


def test_a_server_is_given_its_share_of_device_0_whatever_its_place_on_the_host() -> None:
    given_ = client(Slot("here", "GPU-1", MilliGpu(125)), CARD, plan("/run", CARD))
    assert given_.env == {
        "CUDA_MPS_PIPE_DIRECTORY": "/tmp/nvidia-mps",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=3072M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "12",
    }
    assert given_.mounts == (
        Mount("/tmp/nvidia-mps", source="/run/GPU-1/pipe", kind="bind"),
        Mount("/dev/shm", source="/run/GPU-1/shm", kind="bind"),
    )


@given(st.integers(1, 300_000), st.lists(shares, min_size=1, max_size=1000))
def test_shares_together_never_exceed_the_device(memory: int, held: list[int]) -> None:
    fitting = [share for number, share in enumerate(held) if sum(held[: number + 1]) <= 1000]
    assert sum(memory_of(memory, share) for share in fitting) <= memory
    assert all(1 <= threads_of(share) <= 100 for share in fitting)


def test_a_share_that_is_none_and_a_memory_nobody_knows_are_refused() -> None:
    for share in (0, -1, 1001):
        with pytest.raises(ValueError, match="no share"):
            memory_of(24576, share)
    unknown = replace(CARD, memory_mib=None)
    with pytest.raises(ValueError, match="unknown"):
        plan("/run", unknown)
    with pytest.raises(ValueError, match="unknown"):
        client(Slot("here", "GPU-1", MilliGpu(125)), unknown, plan("/run", CARD))


def test_a_slot_of_another_device_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        client(Slot("here", "GPU-2", MilliGpu(125)), CARD, plan("/run", CARD))
