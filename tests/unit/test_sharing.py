"""What a share means to the programs in a server, and what is honestly said of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.leases import Slot
from quota.units import MilliGpu
from spawner.sharing import caps, device_env, isolation

EIGHTH = {
    "XLA_CLIENT_MEM_FRACTION": "0.125",
    "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.125",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",
    "CUPY_GPU_MEMORY_LIMIT": str(3072 * 1024 * 1024),
    "BERTH_GPU_SHARE_MILLI": "125",
    "BERTH_GPU_MEMORY_MIB": "3072",
}


def slot(device: str | None, share: int = 1000) -> Slot:
    return Slot("here", device, MilliGpu(share))


def test_a_part_asks_every_framework_to_keep_to_it() -> None:
    assert caps(125, 24576) == EIGHTH


@pytest.mark.parametrize("version", ["2.10.0", "2.10.0+cu128", "2.11.0a0+git123", "3.0.0"])
def test_a_pytorch_that_knows_the_option_gets_the_fraction(version: str) -> None:
    told = "per_process_memory_fraction:0.125"
    assert caps(125, 24576, torch_version=version) == EIGHTH | {
        "PYTORCH_ALLOC_CONF": told,
        "PYTORCH_CUDA_ALLOC_CONF": told,
    }


@pytest.mark.parametrize("version", [None, "", "2.9.1", "1.13.1+cu117", "unknown", "2"])
def test_a_pytorch_that_would_fail_at_the_option_does_not_get_it(version: str | None) -> None:
    """Before 2.10 the first CUDA call raises "Unrecognized CachingAllocator option"."""
    assert caps(125, 24576, torch_version=version) == EIGHTH


def test_unknown_memory_gives_fractions_and_no_amount() -> None:
    env = caps(250, None)
    assert env["CUPY_GPU_MEMORY_LIMIT"] == "25%"
    assert "BERTH_GPU_MEMORY_MIB" not in env
    assert caps(125, None)["CUPY_GPU_MEMORY_LIMIT"] == "12.5%"


@pytest.mark.parametrize("share", [0, 1000])
def test_whole_gpus_and_cpu_servers_have_no_cap(share: int) -> None:
    assert caps(share, 24576, torch_version="2.10.0") == {}


@given(st.integers(1, 999))
def test_a_fraction_is_exact_and_plain(share: int) -> None:
    fraction = caps(share, 24576)["XLA_CLIENT_MEM_FRACTION"]
    assert round(float(fraction) * 1000) == share
    assert "e" not in fraction and not fraction.endswith(".")


@pytest.mark.parametrize("slots", [(), (slot(None, 0),), (Slot(None, None, MilliGpu(0)),)])
def test_p06_a_cpu_server_sees_no_device_whatever_the_image_says(slots: tuple[Slot, ...]) -> None:
    env = device_env(slots)
    image = {"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert (image | env)["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert (image | env)["CUDA_VISIBLE_DEVICES"] == ""


def test_a_gpu_server_sees_its_devices_by_uuid() -> None:
    assert device_env((slot("GPU-2"), slot("GPU-1"))) == {
        "CUDA_VISIBLE_DEVICES": "GPU-2,GPU-1",
        "NVIDIA_VISIBLE_DEVICES": "GPU-2,GPU-1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    assert device_env((slot("GPU-1", 125),))["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"


def test_a_device_twice_is_a_mistake_of_ours() -> None:
    with pytest.raises(ValueError, match="twice"):
        device_env((slot("GPU-1", 500), slot("GPU-1", 500)))


@pytest.mark.parametrize(
    ("mode", "share", "fenced", "word"),
    [
        ("exclusive", 1000, True, "hard"),
        ("time-slice", 1000, True, "hard"),
        ("mig", 125, True, "hard"),
        ("mps", 125, True, "firm"),
        ("time-slice", 125, True, "cooperative"),
        ("made-up", 125, True, "none"),
        ("exclusive", 1000, False, "cooperative"),
        ("mig", 125, False, "cooperative"),
        ("mps", 125, False, "cooperative"),
        ("time-slice", 125, False, "cooperative"),
        ("made-up", 125, False, "none"),
        ("time-slice", 0, True, "none"),
        ("time-slice", 0, False, "none"),
    ],
)
def test_isolation_is_named_and_never_better_than_it_is(mode: str, share: int, fenced: bool, word: str) -> None:
    told = isolation(mode, share, fenced=fenced)
    assert told.word == word
    assert told.sentence.endswith(".")
    assert str(told) == f"{word}: {told.sentence}"


def test_local_processes_are_told_that_nothing_fences_the_devices() -> None:
    assert "one system user" in isolation("mps", 500).sentence
    assert "nobody else is placed on it" in isolation("time-slice", 1000).sentence
