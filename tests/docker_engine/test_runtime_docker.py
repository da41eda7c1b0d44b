"""The contract of all runtimes, on containers of a real Engine; and what only containers can promise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import docker.errors
import pytest

from spawner import docker_homes, docker_network
from spawner.box import MIB, Mount
from spawner.docker_engine import Engine
from spawner.docker_images import Images, Pull
from spawner.ports import Unreachable
from tests.contract.runtime_worlds import seen_in, until
from tests.contract.test_runtime import *  # noqa: F403 - the suite itself: its `world` is the one below
from tests.docker_engine.docker_worlds import DockerWorld
from tests.harness import engine as engines

pytestmark = pytest.mark.docker

CARD = "GPU-8f6a3c1e-0000-4000-8000-000000000001"
EATER = "open('ready','w').close()\nx = []\nwhile True: x.append(bytearray(8 << 20))"


@pytest.fixture
def world(engine: engines.Engine, base_image: str, tmp_path: Path) -> Iterator[DockerWorld]:
    made = DockerWorld(engine, tmp_path, base_image)
    yield made
    made.clean()


def test_a_server_has_no_rights_and_is_not_root(world: DockerWorld) -> None:
    world.start("l1", memory_bytes=256 * MIB, cores=0.5, pids=100, shm_bytes=128 * MIB)
    said = world.inside("l1", "id -u; grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status; df -m /dev/shm | tail -1")
    assert said.split()[0] == "1000"
    assert "CapEff:\t0000000000000000" in said and "CapBnd:\t0000000000000000" in said and "NoNewPrivs:\t1" in said
    assert " 128 " in said, "shared memory is what the box says"
    host = world.inspected("l1")["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == 256 * MIB and host["PidsLimit"] == 100


def test_p1_the_devices_of_a_lease_reach_the_engine_by_uuid(world: DockerWorld) -> None:
    world.start("l1", devices=(CARD,))
    found = world.inspected("l1")
    assert found["HostConfig"]["DeviceRequests"][0]["DeviceIDs"] == [CARD]
    assert f"NVIDIA_VISIBLE_DEVICES={CARD}" in found["Config"]["Env"]
    assert len(world.engine.hooked(found["Id"])) == 1


def test_p6_without_a_device_the_image_does_not_decide(world: DockerWorld) -> None:
    world.start("l1")
    found = world.inspected("l1")
    assert not found["HostConfig"]["DeviceRequests"] and "NVIDIA_VISIBLE_DEVICES=void" in found["Config"]["Env"]
    assert world.engine.hooked(found["Id"]) == []


def test_a_hand_over_that_differs_leaves_nothing(world: DockerWorld) -> None:
    with pytest.raises(RuntimeError, match="not handed over"):
        world.runtime.start(world.spec("l1", devices=(CARD,), env={"NVIDIA_VISIBLE_DEVICES": "all"}))
    assert world.runtime.look() == {}


def test_a_server_that_needs_more_memory_is_known_as_such(world: DockerWorld) -> None:
    world.start("l1", code=EATER, memory_bytes=64 * MIB)
    world.until(lambda: seen_in(world.runtime.look(), "l1").ended_at)  # type: ignore[union-attr]
    seen = seen_in(world.runtime.look(), "l1")
    assert seen is not None and seen.out_of_memory and seen.exit_code == -9


def test_two_deployments_do_not_touch_each_other(world: DockerWorld, engine: engines.Engine, tmp_path: Path) -> None:
    other = DockerWorld(engine, tmp_path / "other", world.image, "fedcba9876543210")
    world.start("l1")
    other.start("l1")
    world.runtime.remove("l1")
    assert world.runtime.look() == {}
    assert seen_in(other.runtime.look(), "l1").running  # type: ignore[union-attr]


def test_servers_do_not_reach_each_other(world: DockerWorld) -> None:
    world.start("l1")
    world.start("l2")
    target = world.runtime.address("l2")
    assert target
    program = f"import socket; socket.create_connection(({target!r}, 1), 3)"
    said = world.inside("l1", f'python3 -c "{program}" 2>&1 | tail -1')
    assert "timed out" in said or "unreachable" in said, "refused would mean that a packet came back"


def test_data_can_be_read_and_not_written(world: DockerWorld, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "x").write_text("here")
    (data / "x").chmod(0o644)  # whatever umask a test before this one has left
    data.chmod(0o777)
    world.start("l1", mounts=(Mount("/data", str(data), "bind", read_only=True),))
    said = world.inside("l1", "cat /data/x; touch /data/y 2>&1")
    assert "here" in said and "Read-only" in said and not (data / "y").exists()


def test_another_object_finds_and_ends_what_was_started(world: DockerWorld) -> None:
    world.start("l1")
    again = world.again()
    assert seen_in(again.look(), "l1").running  # type: ignore[union-attr]
    assert again.load("l1").memory_bytes
    again.stop("l1", 5)
    world.until(lambda: not seen_in(world.runtime.look(), "l1").running)  # type: ignore[union-attr]


def test_a_look_costs_one_call_and_one_more_for_what_is_new(
    world: DockerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.start("l1")
    world.start("l2")
    again = world.again()
    calls: list[str] = []
    client = again._engine.client(10.0)
    sent = client.send
    monkeypatch.setattr(
        client, "send", lambda request, **more: (calls.append(request.path_url), sent(request, **more))[1]
    )
    again.look()
    assert len(calls) == 3, calls
    calls.clear()
    again.look()
    again.load("l1")
    assert len(calls) == 1, calls


def test_a_killed_engine_is_unreachable_and_then_the_ends_are_told(world: DockerWorld) -> None:
    world.start("l1")
    world.engine.kill()
    assert isinstance(world.runtime.look(), Unreachable)
    with pytest.raises(RuntimeError):
        world.runtime.remove("l1")
    world.engine.restart()
    look = world.runtime.look()
    assert not isinstance(look, Unreachable) and "l1" in look
    world.runtime.remove("l1")
    assert world.runtime.look() == {}


def test_a_container_of_somebody_else_by_our_name_is_refused_and_stays(world: DockerWorld) -> None:
    client = world.api.client(60)
    name = world.box("l1").name
    foreign = client.create_container(world.image, ["sleep", "1"], name=name)["Id"]
    with pytest.raises(RuntimeError, match="not this Berth's"):
        world.runtime.start(world.spec("l1"))
    world.runtime.remove("l1")
    assert client.inspect_container(foreign)["Id"] == foreign


def test_a_network_of_somebody_else_by_our_name_is_refused(world: DockerWorld) -> None:
    client = world.api.client(60)
    client.create_network(docker_network.name_of("someone"))
    with pytest.raises(RuntimeError, match="not made by this Berth"):
        docker_network.ensure(world.api, "someone")


def test_the_network_is_made_once(world: DockerWorld) -> None:
    assert docker_network.ensure(Engine(world.engine.url), world.deployment) == world.network
    with pytest.raises(RuntimeError, match="the settings want"):
        docker_network.ensure(world.api, world.deployment, "10.77.0.0/16")


def test_a_home_is_the_users_own_from_the_first_moment(world: DockerWorld) -> None:
    mount = Mount("/srv/home/kept", docker_homes.volume_of(world.deployment, "alice", 0))
    docker_homes.ensure_volume(world.api, world.deployment, "alice", mount)
    assert docker_homes.exists(world.api, mount.source)
    docker_homes.ensure_volume(world.api, world.deployment, "alice", mount)
    world.api.client(60).create_volume("foreign")
    with pytest.raises(RuntimeError, match="not of this Berth"):
        docker_homes.ensure_volume(world.api, world.deployment, "x", Mount("/x", "foreign"))


def test_an_image_is_there_or_cannot_be_fetched(world: DockerWorld) -> None:
    images = Images(world.api)
    assert images.present(world.image) and not images.present("berth-nowhere:1")
    with pytest.raises(RuntimeError):
        images.pull("127.0.0.1:9/berth-nowhere:1", Pull())
    with pytest.raises(RuntimeError, match="not on this host"):
        spec = world.spec("l1")
        assert spec.box is not None
        object.__setattr__(spec.box, "image", "berth-nowhere:1")
        world.runtime.start(spec)


def test_the_end_of_a_log_outlives_its_container(world: DockerWorld) -> None:
    world.start("l1")
    world.runtime.remove("l1")
    assert world.runtime.log_tail("l1", 5) == ("the server is up",)
    assert world.again().log_tail("l1", 5) == ("the server is up",)


def test_a_removal_ends_what_ignores_signals(world: DockerWorld) -> None:
    world.start("l1", deaf=True)
    container = world.inspected("l1")["Id"]
    world.runtime.remove("l1")
    with pytest.raises(docker.errors.NotFound):
        world.api.client(60).inspect_container(container)
    until(lambda: world.runtime.look() == {}, "gone")
