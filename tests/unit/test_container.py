"""The server of a lease as one plain value."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quota.clock import SystemClock
from quota.leases import Holder, Lease, Price, Slot, State, Target
from quota.units import MicroCredits, MilliGpu
from spawner.container import INHERITED, SECRETS, Place, server_spec
from spawner.ports import ServerSpec
from tests.fakes.spawner_book import device

LEASE = Lease(
    id="l1",
    version=1,
    state=State.STARTING,
    target=Target.RUN,
    holder=Holder("alice"),
    account_id=1,
    account="alice",
    profile="gpu-1-2",
    image="this-environment",
    share=MilliGpu(500),
    count=1,
    slots=(Slot("h", "SIM-1", MilliGpu(500)),),
    simulated=True,
    price=Price(1, MicroCredits(1_000_000), MicroCredits(0)),
    owner="hub-1",
    requested_at=SystemClock().now(),
    requested_by="alice",
)
CPU = replace(LEASE, share=MilliGpu(0), count=0, slots=(Slot(None, None, MilliGpu(0)),), profile="cpu", simulated=False)
DEVICES = [device(0), device(1)]


def test_a_whole_spec() -> None:
    spec = server_spec(
        LEASE, ["python", "-m", "lab"], {"PATH": "/bin", "JUPYTERHUB_USER": "alice"}, DEVICES, Place("/h")
    )
    assert spec == ServerSpec(
        lease_id="l1",
        argv=("python", "-m", "lab"),
        env={
            "HOME": "/h",
            "JUPYTERHUB_ROOT_DIR": "/h",
            "JUPYTER_CONFIG_DIR": "/h/.jupyter",
            "JUPYTER_DATA_DIR": "/h/.local/share/jupyter",
            "JUPYTER_RUNTIME_DIR": "/h/.local/share/jupyter/runtime",
            "IPYTHONDIR": "/h/.ipython",
            "PATH": "/bin",
            "JUPYTERHUB_USER": "alice",
            "CUDA_VISIBLE_DEVICES": "SIM-1",
            "NVIDIA_VISIBLE_DEVICES": "SIM-1",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "XLA_CLIENT_MEM_FRACTION": "0.5",
            "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5",
            "TF_FORCE_GPU_ALLOW_GROWTH": "true",
            "CUPY_GPU_MEMORY_LIMIT": str(12288 << 20),
            "BERTH_GPU_SHARE_MILLI": "500",
            "BERTH_GPU_MEMORY_MIB": "12288",
            "BERTH_LEASE": "l1",
            "BERTH_PROFILE": "gpu-1-2",
            "BERTH_SIMULATED": "1",
        },
        cwd="/h",
    )


def test_p06_a_cpu_lease_is_shown_no_device_whatever_the_hub_says() -> None:
    loud = {"NVIDIA_VISIBLE_DEVICES": "all", "CUDA_VISIBLE_DEVICES": "0,1", "BERTH_LEASE": "other"}
    env = server_spec(CPU, ["x"], loud, DEVICES, Place("/h")).env
    assert (env["NVIDIA_VISIBLE_DEVICES"], env["CUDA_VISIBLE_DEVICES"], env["BERTH_LEASE"]) == ("void", "", "l1")
    assert "BERTH_GPU_SHARE_MILLI" not in env
    assert env["BERTH_SIMULATED"] == "0"


def test_secrets_never_reach_a_server() -> None:
    env = server_spec(LEASE, ["x"], dict.fromkeys(SECRETS, "secret"), DEVICES, Place("/h")).env
    assert "secret" not in env.values()
    assert not SECRETS & set(INHERITED)
    assert not [name for name in INHERITED if "PROXY" in name or "TOKEN" in name]


def test_the_site_may_move_the_folders_of_a_home_and_gets_settings_and_service() -> None:
    place = Place("/h", "/settings", "http://127.0.0.1:9/services/berth/", torch_version="2.10.0")
    env = server_spec(LEASE, ["x"], {"JUPYTER_DATA_DIR": "/scratch"}, DEVICES, place).env
    assert env["JUPYTER_DATA_DIR"] == "/scratch"
    assert env["JUPYTER_CONFIG_PATH"] == "/settings"
    assert env["BERTH_SERVICE_URL"] == "http://127.0.0.1:9/services/berth/"
    assert env["PYTORCH_ALLOC_CONF"] == "per_process_memory_fraction:0.5"


def test_a_device_that_is_not_in_the_rows_has_an_unknown_memory() -> None:
    env = server_spec(LEASE, ["x"], {}, [], Place("/h")).env
    assert env["CUPY_GPU_MEMORY_LIMIT"] == "50%"
    assert "BERTH_GPU_MEMORY_MIB" not in env


def test_a_part_of_a_card_is_named_as_the_driver_names_it_now_and_is_the_servers_alone() -> None:
    key = "GPU-1:3g.20gb:4"
    part = replace(device(0), uuid=key, mode="mig", capacity=500, handle="MIG-new", memory_mib=19968, simulated=False)
    lease = replace(LEASE, slots=(Slot("h", key, MilliGpu(500)),), simulated=False)
    env = server_spec(lease, ["x"], {}, [part], Place("/h")).env
    assert (env["NVIDIA_VISIBLE_DEVICES"], env["CUDA_VISIBLE_DEVICES"]) == ("MIG-new", "MIG-new")
    assert "XLA_CLIENT_MEM_FRACTION" not in env and "BERTH_GPU_SHARE_MILLI" not in env
    assert (part.memory_for(500), part.free, replace(part, used=125).free) == (19968, 500, 0)
    for absent in ([], [replace(part, handle="")]):
        with pytest.raises(ValueError, match="not there at present"):
            server_spec(lease, ["x"], {}, absent, Place("/h"))
