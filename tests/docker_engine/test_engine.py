"""The Engine of the tests is a real one, takes requests for devices, and comes back after a kill."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import docker
import jupyterhub
import jupyterlab
import psutil
import pytest
from docker.types import DeviceRequest

from tests.harness.engine import CHECKOUT, Engine

pytestmark = pytest.mark.docker
DEVICE = "GPU-8f6a3c1e-0000-4000-8000-000000000001"


def test_a_container_runs(client: docker.DockerClient, base_image: str) -> None:
    said = client.containers.run(base_image, ["python3", "-c", "print(6 * 7)"], network_mode="none", remove=True)
    assert said == b"42\n"


def test_a_request_for_a_device_reaches_the_hook(client: docker.DockerClient, base_image: str, engine: Engine) -> None:
    container = client.containers.run(
        base_image,
        ["sleep", "infinity"],
        detach=True,
        network_mode="none",
        environment={"NVIDIA_VISIBLE_DEVICES": DEVICE},
        device_requests=[DeviceRequest(device_ids=[DEVICE], capabilities=[["gpu"]])],
    )
    container.reload()
    assert container.attrs["HostConfig"]["DeviceRequests"][0]["DeviceIDs"] == [DEVICE]
    assert f"NVIDIA_VISIBLE_DEVICES={DEVICE}" in container.attrs["Config"]["Env"]
    assert len(engine.hooked(container.id)) == 1


def test_without_a_request_there_is_no_hook(client: docker.DockerClient, base_image: str, engine: Engine) -> None:
    container = client.containers.run(base_image, ["sleep", "infinity"], detach=True, network_mode="none")
    assert engine.hooked(container.id) == []


def test_a_killed_daemon_comes_back_with_its_images(base_image: str, engine: Engine) -> None:
    engine.kill()
    engine.restart()
    with engine.connected() as client:
        assert client.images.get(base_image)


def test_jupyterlab_and_kit_are_in_the_lab_image(client: docker.DockerClient, lab_image: str) -> None:
    ask = "import berth_lab, jupyterhub, jupyterlab, os"
    ask += "; print(jupyterhub.__version__, jupyterlab.__version__, os.getuid())"
    said = client.containers.run(lab_image, ["python", "-c", ask], network_mode="none", remove=True)
    assert said.decode().split() == [jupyterhub.__version__, jupyterlab.__version__, "1000"]


def test_what_a_killed_run_left_is_ended(engine: Engine, tmp_path: Path) -> None:
    """The next one begins all the same, and its daemon is gone."""
    imports = "import os, pathlib; from tests.harness.engine import Engine"
    begin = f"{imports}; e = Engine.begin(pathlib.Path({str(tmp_path)!r}))"
    left = subprocess.run(
        [sys.executable, "-c", f"{begin}; print(e.process.pid, flush=True); os._exit(0)"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    daemon = int(left.stdout)
    assert psutil.pid_exists(daemon), left.stderr
    again = subprocess.run(
        [sys.executable, "-c", f"{begin}; e.stop()"], cwd=CHECKOUT, capture_output=True, text=True, timeout=120
    )
    assert again.returncode == 0, again.stderr
    assert not psutil.pid_exists(daemon) or psutil.Process(daemon).status() == psutil.STATUS_ZOMBIE
    with engine.connected() as client:
        assert client.ping(), "another Engine is not touched"
