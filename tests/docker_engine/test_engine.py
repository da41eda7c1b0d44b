"""The Engine of the tests is a real one, takes requests for devices, and comes back after a kill."""

from __future__ import annotations

import docker
import jupyterhub
import jupyterlab
import pytest
from docker.types import DeviceRequest

from tests.harness.engine import Engine

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
