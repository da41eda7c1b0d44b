"""What the Engine is asked for: hardened whatever the site adds, exactly the lease's devices, checked afterwards."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from spawner.box import Box, Mount
from spawner.docker_seen import address, exit_code, lease_of, moment, seen
from spawner.docker_spec import create_body, fault, handed_over, host_config, is_socket, seen_inside
from spawner.ports import Seen, ServerSpec
from spawner.pulling import Pulled, after

A, B = "GPU-aaaa", "GPU-bbbb"
BOX = Box("berth--x--alice", "lab:1", {"berth.lease": "l1"}, "berth-x", "1000:100")


def spec(box: Box | None, **env: str) -> ServerSpec:
    return ServerSpec("l1", ("serve",), env, "/home/jovyan", box)


def test_a_plain_box_is_hardened() -> None:
    host = host_config(BOX)
    assert host["Privileged"] is False and host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["PidsLimit"] > 0 and host["RestartPolicy"]["Name"] == "no" and host["Init"] is True
    assert host["NetworkMode"] == "berth-x" and host["IpcMode"] == "private"
    assert host["LogConfig"]["Config"]["max-size"] and host["DeviceRequests"] == []


def test_limits_are_those_of_the_profile() -> None:
    host = host_config(replace(BOX, memory_bytes=1 << 30, cores=1.5, shm_bytes=1 << 29))
    assert host["Memory"] == host["MemorySwap"] == 1 << 30, "no swap"
    assert host["NanoCpus"] == 1_500_000_000 and host["ShmSize"] == 1 << 29
    assert "Memory" not in host_config(BOX), "no limit is no limit of 0"


def test_p1_devices_are_asked_for_by_uuid_and_never_by_number() -> None:
    (request,) = host_config(replace(BOX, devices=(A, B)))["DeviceRequests"]
    assert request["DeviceIDs"] == [A, B] and request["Count"] == 0 and request["Capabilities"] == [["gpu"]]


def test_a_shared_memory_mount_takes_the_place_of_the_size() -> None:
    host = host_config(replace(BOX, mounts=(Mount("/dev/shm", "/run/mps/shm", "bind"),)))
    assert "ShmSize" not in host and host["Mounts"][0]["Target"] == "/dev/shm"


def test_data_is_read_only() -> None:
    (mount,) = host_config(replace(BOX, mounts=(Mount("/data", "/srv/data", "bind", read_only=True),)))["Mounts"]
    assert mount["ReadOnly"] is True


@pytest.mark.parametrize(
    "more",
    [
        {"Privileged": True},
        {"CapAdd": ["SYS_ADMIN"]},
        {"PidMode": "host"},
        {"IpcMode": "host"},
        {"NetworkMode": "host"},
        {"NetworkMode": "container:other"},
        {"Devices": [{"PathOnHost": "/dev/nvidia0"}]},
        {"DeviceRequests": [{"Count": -1, "Capabilities": [["gpu"]]}]},
        {"SecurityOpt": ["seccomp=unconfined"]},
        {"SecurityOpt": ["no-new-privileges:false"]},
        {"Binds": ["/var/run/docker.sock:/var/run/docker.sock"]},
        {"Binds": ["/run:/host-run:ro"]},
        {"Binds": ["/:/host"]},
        {"Mounts": [{"Type": "bind", "Source": "/data/../run/docker.sock", "Target": "/x"}]},
    ],
)
def test_p7_p8_what_would_let_a_server_out_is_refused(more: dict[str, Any]) -> None:
    assert "take it out" in fault(more)
    with pytest.raises(ValueError, match="take it out"):
        create_body(spec(replace(BOX, host_config=more)))


def test_a_mount_of_the_engines_socket_is_refused_however_it_comes() -> None:
    for source in ("/var/run/docker.sock", "/var/run", "/run/", "/srv/docker.sock", "/"):
        assert is_socket(source), source
        with pytest.raises(ValueError, match="socket"):
            create_body(spec(replace(BOX, mounts=(Mount("/x", source, "bind"),))))
    assert not is_socket("/data") and not is_socket("/runs/data") and not is_socket("/var/lib/data")


def test_what_the_site_adds_stands_beside_what_berth_sets() -> None:
    more = {"Dns": ["10.0.0.1"], "PidsLimit": -1, "CapDrop": [], "Mounts": [{"Type": "volume", "Target": "/w"}]}
    host = host_config(replace(BOX, host_config=more, mounts=(Mount("/home", "home"),)))
    assert host["Dns"] == ["10.0.0.1"] and host["PidsLimit"] == BOX.pids and host["CapDrop"] == ["ALL"]
    assert [mount["Target"] for mount in host["Mounts"]] == ["/w", "/home"]


def test_the_body_names_program_folder_user_and_labels() -> None:
    body = create_body(spec(replace(BOX, config={"Labels": {"site": "1", "berth.lease": "forged"}}), B="2", A="1"))
    assert body["Cmd"] == ["serve"] and body["WorkingDir"] == "/home/jovyan" and body["User"] == "1000:100"
    assert body["Env"] == ["A=1", "B=2"] and body["Labels"] == {"site": "1", "berth.lease": "l1"}
    with pytest.raises(ValueError, match="no container"):
        create_body(spec(None))


def inspected(devices: list[str] | None, visible: str | None, **state: Any) -> dict[str, Any]:
    requests = [{"DeviceIDs": devices, "Count": 0}] if devices is not None else None
    env = [] if visible is None else [f"NVIDIA_VISIBLE_DEVICES={visible}"]
    return {"HostConfig": {"DeviceRequests": requests}, "Config": {"Env": env}, "State": state}


@pytest.mark.parametrize(
    ("devices", "visible", "wanted", "good"),
    [
        (None, "void", (), True),
        ([A], A, (A,), True),
        ([B, A], f"{A},{B}", (A, B), True),
        (None, "all", (), False),
        (None, None, (), False),
        ([B], A, (A,), False),
        ([A, B], A, (A,), False),
        ([A], "all", (A,), False),
        ([], A, (A,), False),
    ],
)
def test_p6_a_hand_over_is_exact_or_told(
    devices: list[str] | None, visible: str | None, wanted: tuple[str, ...], good: bool
) -> None:
    assert (handed_over(inspected(devices, visible), wanted) == "") is good


def test_a_privileged_container_is_no_hand_over() -> None:
    found = inspected([A], A)
    found["HostConfig"]["Privileged"] = True
    assert "privileged" in handed_over(found, (A,))


def test_what_is_seen_inside_is_held_against_the_lease() -> None:
    card = f"GPU 0: NVIDIA A100 (UUID: {A})\n"
    part = "  MIG 1g.10gb Device 0: (UUID: MIG-cccc)\n"
    assert seen_inside(card, (A,)) == ""
    assert seen_inside(card + part, ("MIG-cccc",)) == "", "the card of a part is listed with it"
    assert A in seen_inside(card, (B,))
    assert "none" in seen_inside("", (A,))
    assert seen_inside(card + f"GPU 1: NVIDIA A100 (UUID: {B})\n", (A,)) != ""


# ---- what the Engine tells -----------------------------------------------------------------------------------------

START, END = "2026-12-04T02:47:48.145884273Z", "2026-12-04T03:00:00Z"


def state(**more: Any) -> dict[str, Any]:
    return {"Id": "c1", "State": {"StartedAt": START, "FinishedAt": "0001-01-01T00:00:00Z", **more}}


def test_moments_are_read_to_the_microsecond_and_the_year_one_is_none() -> None:
    assert moment(START) == datetime(2026, 12, 4, 2, 47, 48, 145884, UTC)
    assert moment("2026-12-04T04:00:00+01:00") == datetime(2026, 12, 4, 3, tzinfo=UTC)
    for nothing in ("0001-01-01T00:00:00Z", "", None, "yesterday", 5):
        assert moment(nothing) is None


def test_signals_are_negative_as_in_a_record_of_ours() -> None:
    assert [exit_code(code) for code in (0, 3, 137, 143, 255, None, "0")] == [0, 3, -9, -15, 255, None, None]


def test_containers_are_seen_as_what_they_are() -> None:
    assert seen("l1", state(Status="running")) == Seen("l1", True, moment(START))
    assert seen("l1", state(Status="paused")).running
    ended = seen("l1", state(Status="exited", FinishedAt=END, ExitCode=137, OOMKilled=True))
    assert ended == Seen("l1", False, moment(START), moment(END), -9, out_of_memory=True)
    created = seen("l1", state(Status="created", StartedAt="0001-01-01T00:00:00Z"))
    assert created == Seen("l1", False), "never started: there is no end to tell"
    odd = seen("l1", state(Status="exited", FinishedAt="2026-12-04T01:00:00Z", ExitCode=0))
    assert odd.ended_at is None, "an end before the start is none"


def test_a_container_without_our_label_is_nobodys() -> None:
    assert lease_of({"Labels": None}) == lease_of({}) == ""
    assert lease_of({"Labels": {"berth.lease": "l1"}}) == "l1"


def test_the_address_is_that_in_our_network() -> None:
    found = {"NetworkSettings": {"Networks": {"berth-x": {"IPAddress": "10.0.0.5"}, "other": {"IPAddress": "1.1.1.1"}}}}
    assert address(found, "berth-x") == "10.0.0.5" and address(found, "y") == address({}, "x") == ""


# ---- pulls ---------------------------------------------------------------------------------------------------------


def pulled(*lines: dict[str, Any]) -> Pulled:
    state = Pulled()
    for line in lines:
        state = after(state, line)
    return state


def test_a_pull_is_as_far_as_its_known_layers() -> None:
    half = {"id": "a", "status": "Downloading", "progressDetail": {"current": 50, "total": 100}}
    state = pulled({"id": "1", "status": "Pulling from lab"}, {"id": "a", "status": "Pulling fs layer"})
    assert state.percent is None, "no size is known"
    assert pulled(half).percent == 50
    more = {"id": "b", "status": "Downloading", "progressDetail": {"current": 0, "total": 300}}
    assert pulled(half, more).percent == 12
    assert pulled(half, more, {"id": "a", "status": "Pull complete"}).percent == 25
    assert pulled(half, {"error": "no\nspace"}).error == "no space"
