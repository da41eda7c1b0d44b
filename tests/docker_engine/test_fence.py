"""The fence in a real packet filter, around real containers: what each reaches, and would reach without it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import docker
import pytest

from spawner import docker_network, fence
from spawner.box import DEPLOYMENT_LABEL, EGRESS_LABEL
from spawner.docker_engine import Engine as Caller
from spawner.egress import Egress, Fence
from spawner.fencing import Keeper
from tests.harness.engine import Engine
from tests.harness.netns import Neighbour, run
from tests.harness.waiting import until

pytestmark = pytest.mark.docker
OURS, OUTSIDE, METADATA = "198.51.100.1", "198.51.100.2", "169.254.169.254"
ALLOWED, OTHER = 18081, 18099
_SERVE = """
import socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", int(sys.argv[1]))); s.listen(16)
while True: s.accept()[0].close()
"""
_ASK = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()"


@pytest.fixture(scope="module")
def outside(engine: Engine) -> Iterator[Neighbour]:
    """A machine beyond the host that answers on 443 and 9999, and on a cloud's address for metadata."""
    neighbour = Neighbour("outside", OURS, OUTSIDE)
    neighbour.run("ip", "address", "add", f"{METADATA}/32", "dev", "lo")
    run("ip", "route", "add", METADATA, "via", OUTSIDE)
    serving = [
        subprocess.Popen(argv)
        for argv in (
            neighbour.argv(sys.executable, "-c", _SERVE, "443"),
            neighbour.argv(sys.executable, "-c", _SERVE, "9999"),
            neighbour.argv(sys.executable, "-c", _SERVE, "80"),
            [sys.executable, "-c", _SERVE, str(ALLOWED)],
            [sys.executable, "-c", _SERVE, str(OTHER)],
        )
    ]
    yield neighbour
    for process in serving:
        process.kill()
        process.wait()
    neighbour.close()


class Place:
    """A network with two servers and its fence."""

    def __init__(self, engine: Engine, client: docker.DockerClient, image: str) -> None:
        self.network = docker_network.ensure(Caller(engine.url), "fence1")
        self.fence = Fence("fence1", self.network.bridge, self.network.gateway, (ALLOWED,), (f"{OUTSIDE}/32",))
        self.one, self.two = (
            client.containers.run(
                image, ["python3", "-c", _SERVE, "7777"], detach=True, network=self.network.name, cap_drop=["ALL"]
            )
            for _ in range(2)
        )
        for container in (self.one, self.two):
            container.reload()
            until(lambda c=container: not self._refused(c), 10, "the server in the container listens")

    def _refused(self, container: docker.models.containers.Container) -> int:
        return subprocess.run(
            [sys.executable, "-c", _ASK, self.address(container), "7777"], capture_output=True
        ).returncode

    def address(self, container: docker.models.containers.Container) -> str:
        return str(container.attrs["NetworkSettings"]["Networks"][self.network.name]["IPAddress"])

    def reaches(self, address: str, port: int) -> bool:
        """Whether the first server gets a connection."""
        return bool(self.one.exec_run(["python3", "-c", _ASK, address, str(port)]).exit_code == 0)

    def put_up(self, egress: Egress | None) -> None:
        fence.put_up(self.fence, {} if egress is None else {self.address(self.one): egress})


@pytest.fixture
def place(engine: Engine, client: docker.DockerClient, base_image: str, outside: Neighbour) -> Iterator[Place]:
    place = Place(engine, client, base_image)
    yield place
    fence.take_down(place.fence)


def test_without_a_fence_all_is_reached(place: Place) -> None:
    """Else the other tests would show nothing."""
    gateway = place.network.gateway
    assert place.reaches(OUTSIDE, 443) and place.reaches(OUTSIDE, 9999) and place.reaches(METADATA, 80)
    assert place.reaches(gateway, ALLOWED) and place.reaches(gateway, OTHER) and place.reaches(OURS, OTHER)


@pytest.mark.parametrize(
    ("egress", "web", "anything"),
    [(Egress.OPEN, True, True), (Egress.REGISTRIES, True, False), (Egress.NONE, False, False), (None, False, False)],
)
def test_what_a_server_reaches(place: Place, egress: Egress | None, web: bool, anything: bool) -> None:
    place.put_up(egress)
    assert fence.stands(place.fence)
    assert place.reaches(place.network.gateway, ALLOWED)
    assert (place.reaches(OUTSIDE, 443), place.reaches(OUTSIDE, 9999)) == (web, anything)
    for address, port in ((METADATA, 80), (place.network.gateway, OTHER), (OURS, OTHER), (OURS, ALLOWED)):
        assert not place.reaches(address, port), (address, port)
    assert not place.reaches(place.address(place.two), 7777)
    assert not place._refused(place.one), "the host still reaches its servers"


def test_nobody_outside_reaches_a_server(place: Place, outside: Neighbour) -> None:
    place.put_up(Egress.OPEN)
    ask = outside.argv(sys.executable, "-c", _ASK, place.address(place.one), "7777")
    assert subprocess.run(ask, capture_output=True).returncode != 0


def test_it_is_put_up_twice_and_taken_down_wholly(place: Place) -> None:
    before = run("iptables", "-S")
    place.put_up(Egress.OPEN)
    once = run("iptables", "-S")
    place.put_up(Egress.OPEN)
    assert run("iptables", "-S") == once != before
    fence.take_down(place.fence)
    fence.take_down(place.fence)
    assert run("iptables", "-S") == before
    assert not fence.stands(place.fence)


def test_it_outlives_the_engine(place: Place, engine: Engine) -> None:
    place.put_up(Egress.NONE)
    engine.restart()
    assert fence.stands(place.fence)


def test_the_keeper_follows_servers_and_mends_the_fence(
    place: Place, engine: Engine, client: docker.DockerClient, base_image: str
) -> None:
    keeper = Keeper(Caller(engine.url), place.network.name, place.fence)
    assert keeper.keep()
    assert not place.reaches(OUTSIDE, 9999), "it has no label"

    labels = {DEPLOYMENT_LABEL: "fence1", EGRESS_LABEL: "open"}
    place.one = client.containers.run(
        base_image, ["sleep", "infinity"], detach=True, network=place.network.name, labels=labels, cap_drop=["ALL"]
    )
    assert not place.reaches(OUTSIDE, 9999), "not before it was seen"
    assert keeper.keep() and not keeper.keep()
    assert place.reaches(OUTSIDE, 9999)
    assert not place.reaches(METADATA, 80)

    fence.take_down(place.fence)
    assert place.reaches(METADATA, 80)
    assert keeper.keep(), "somebody took it down"
    assert not place.reaches(METADATA, 80)

    place.one.remove(force=True)
    assert keeper.keep()
    assert "/32 -j RETURN" not in run("iptables", "-S"), "nobody is let through any more"
