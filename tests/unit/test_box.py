"""A lease becomes a container as a value: names, limits, what it may reach, its home."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from hub_config.fencing import resolvers
from quota.leases import Holder, Lease
from spawner.box import EGRESS_LABEL, LEASE_LABEL, MIB, BoxPlan, Mount, box_of
from spawner.docker_homes import generation, home_mount, retire, volume_of
from spawner.docker_images import _split
from spawner.docker_spawner import _engine_words
from spawner.lanes import lane, lane_of
from spawner.profiles import Profile
from tests.unit.test_container import LEASE

PLAN = BoxPlan("d1", "berth-d1", {"lab": "lab:1"}, 8192 * MIB)
HOME = Mount("/home/jovyan", "berth-home--d1--alice")
CPU = Profile("cpu", "CPU", cpu=1.5, memory_mib=1024)


def lease(**more: Any) -> Lease:
    return replace(LEASE, holder=Holder("alice", "two"), image="lab", **more)


def test_a_box_has_the_limits_of_its_profile() -> None:
    box = box_of(PLAN, lease(), CPU, HOME, ())
    assert (box.memory_bytes, box.cores, box.shm_bytes) == (1024 * MIB, 1.5, 512 * MIB)
    assert box.name == "berth--d1--alice--two" and box.image == "lab:1" and box.network == "berth-d1"
    assert box.labels[LEASE_LABEL] == lease().id and box.labels[EGRESS_LABEL] == "open"


def test_without_limits_shared_memory_is_a_part_of_the_hosts() -> None:
    box = box_of(PLAN, lease(), Profile("cpu", "CPU"), HOME, ())
    assert box.memory_bytes is None and box.cores is None and box.shm_bytes == 4096 * MIB


def test_what_no_profile_allows_is_not_reached() -> None:
    assert box_of(PLAN, lease(), None, HOME, ()).labels[EGRESS_LABEL] == "none"
    assert box_of(PLAN, lease(), replace(CPU, egress="registries"), HOME, ()).labels[EGRESS_LABEL] == "registries"


def test_simulated_devices_are_none_of_the_host() -> None:
    assert box_of(PLAN, lease(simulated=True), CPU, HOME, ("SIM-1",)).devices == ()
    assert box_of(PLAN, lease(simulated=False), CPU, HOME, ("GPU-1",)).devices == ("GPU-1",)


def test_an_image_that_is_not_in_the_catalogue_is_no_container() -> None:
    with pytest.raises(KeyError):
        box_of(replace(PLAN, references={}), lease(), CPU, HOME, ())


class Kept:
    def __init__(self) -> None:
        self.words: dict[str, str] = {}
        self.events: list[tuple[str, Mapping[str, Any] | None]] = []

    def meta(self, key: str) -> str | None:
        return self.words.get(key)

    def set_meta(self, key: str, value: str) -> None:
        self.words[key] = value

    def add_event(
        self,
        kind: str,
        lease_id: str | None = None,
        account_id: int | None = None,
        by: str = "",
        detail: Mapping[str, Any] | None = None,
    ) -> None:
        self.events.append((kind, detail))


def test_s25_each_user_of_a_name_has_a_home_of_their_own() -> None:
    kept, now = Kept(), datetime(2026, 12, 4, tzinfo=UTC)
    first = home_mount(kept, "d1", "bob", "/home")
    old = retire(kept, "d1", "bob", now)
    second = home_mount(kept, "d1", "bob", "/home")
    assert old.volume == first.source != second.source and generation(kept, "bob") == 1
    assert kept.events[0][0] == "home-retired"
    assert home_mount(kept, "d1", "eve", "/home").source == volume_of("d1", "eve", 0)


def test_s20_volumes_are_injective_over_generations() -> None:
    names = ["bob", "bob-1", "bob\n1", "bob1", "Bob", "b.ob", "b_ob", "用户"]
    volumes = [volume_of("d1", name, number) for name in names if "\n" not in name for number in range(3)]
    assert len(set(volumes)) == len(volumes) and all(len(volume) <= 63 for volume in volumes)


def test_s21_a_folder_of_the_host_by_its_template() -> None:
    mount = home_mount(Kept(), "d1", "alice", "/home/jovyan", "/data/homes/{user}")
    assert mount == Mount("/home/jovyan", "/data/homes/alice", "bind")


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("lab", ("lab", "latest")),
        ("lab:1", ("lab", "1")),
        ("host:5000/lab", ("host:5000/lab", "latest")),
        ("host:5000/lab:2", ("host:5000/lab", "2")),
        ("lab@sha256:aa", ("lab@sha256:aa", "")),
    ],
)
def test_a_reference_has_one_tag(reference: str, parts: tuple[str, str]) -> None:
    assert _split(reference) == parts


def test_name_servers_that_only_the_host_reaches_are_left_out() -> None:
    assert resolvers("# x\nnameserver 127.0.0.53\nnameserver 10.0.0.2\nnameserver fd00::1\nsearch a\n") == ("10.0.0.2",)


def test_dockerspawners_words_are_the_engines() -> None:
    given = {"privileged": True, "network_mode": "host", "Dns": ["1"], "odd": 1}
    assert _engine_words(given) == {"Privileged": True, "NetworkMode": "host", "Dns": ["1"], "odd": 1}


def test_lanes_are_known_by_their_functions() -> None:
    @lane("pull")
    def pull() -> None: ...

    assert lane_of(pull) == "pull" and lane_of(len) == ""
    with pytest.raises(ValueError, match="no lane"):
        lane("fast")
