"""The researcher's and the admin's day by REST, on one deployment with two simulated GPUs.

One GPU-hour costs 3,600 credits here, so a milli-GPU-second costs exactly 1,000 micro-credits and every second shows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

import pytest

from tests.harness import Kernel, Stack, until

pytestmark = pytest.mark.hub

TOML = """
[gpus]
source = "simulated"
simulated = 2

[hub]
named_servers = 5  # so that Berth's own limit speaks first

[first_start]
monthly_credits = 1000000
credits_per_gpu_hour = 3600
max_servers = 3
"""
MICRO_PER_MILLI_SECOND = 1000
PROFILES = {"cpu": 0, "gpu-1-8": 125, "gpu-1-4": 250, "gpu-1-2": 500, "gpu-1": 1000, "gpu-2": 1000}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("journey") / "data", TOML) as stack:
        yield stack


@pytest.fixture(autouse=True)
def tidy(stack: Stack) -> Iterator[None]:
    yield
    stack.tidy()


def seconds_between(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def environment(kernel: Kernel, *names: str) -> dict[str, str | None]:
    printed = kernel.run(f"import os, json; print(json.dumps({{n: os.environ.get(n) for n in {list(names)!r}}}))")
    return dict(json.loads(printed))


# ---- what there is ---------------------------------------------------------------------------------------------


def test_profiles_tell_share_price_and_what_is_free(stack: Stack) -> None:
    items = {item["name"]: item for item in stack.researcher.read("/profiles")["items"]}
    assert {name: item["share_milli"] for name, item in items.items()} == PROFILES
    assert items["gpu-1-4"]["free_now"] == 8
    assert items["gpu-2"]["free_now"] == 1
    assert items["gpu-1-4"]["price_per_hour_micro_credits"] == 900_000_000
    assert items["cpu"]["price_per_hour_micro_credits"] == 0
    assert items["gpu-1"]["simulated"] is True
    assert items["cpu"]["simulated"] is False


def test_the_fleet_is_simulated_and_says_so(stack: Stack) -> None:
    devices = stack.admin.read("/fleet")["items"]
    assert len(devices) == 2
    assert all(device["simulated"] and device["uuid"].startswith("SIM-") for device in devices)
    assert all("simulated" in device["name"].lower() for device in devices)


# ---- a session -------------------------------------------------------------------------------------------------


def test_p15_a_quarter_is_held_shown_and_charged_to_the_second(stack: Stack) -> None:
    me, before = stack.researcher, stack.researcher.available()
    me.start("gpu-1-4")
    answered = time.monotonic()
    lease = me.lease()
    assert (lease["state"], lease["target"], lease["profile"]) == ("RUNNING", "RUN", "gpu-1-4")
    assert (lease["share_milli"], len(lease["devices"]), lease["simulated"]) == (250, 1, True)
    assert stack.admin.lease(lease["id"])["share_milli"] == 250  # the admin's list shows the fraction too
    with Kernel(me) as kernel:
        seen = environment(kernel, "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "BERTH_SIMULATED")
    assert seen["CUDA_VISIBLE_DEVICES"] == seen["NVIDIA_VISIBLE_DEVICES"] == lease["devices"][0]["uuid"]
    assert seen["BERTH_SIMULATED"] == "1"
    me.stop()
    measured = time.monotonic() - answered
    done = me.settled(lease["id"])
    lasted = seconds_between(done["started_at"], done["ended_at"])
    assert abs(lasted - measured) <= 1.5, "the bill runs from ready to gone"
    assert done["milli_gpu_seconds"] == pytest.approx(250 * lasted, abs=1)
    assert done["charged_micro_credits"] == pytest.approx(250 * lasted * MICRO_PER_MILLI_SECOND, abs=1)
    assert done["stop_reason"] == "user"
    assert before - me.available() == done["charged_micro_credits"]
    assert me.held() == 0


def test_usage_lists_exactly_what_was_charged(stack: Stack) -> None:
    me = stack.researcher
    lease = next(lease for lease in me.leases() if lease["profile"] == "gpu-1-4")
    usage = me.read("/me/usage")
    (line,) = (line for line in usage["items"] if line["lease_id"] == lease["id"])
    assert line["charged_micro_credits"] == lease["charged_micro_credits"]
    assert line["milli_gpu_seconds"] == lease["milli_gpu_seconds"]


def test_p06_a_cpu_server_sees_no_device_and_costs_its_own_rate(stack: Stack) -> None:
    me = stack.researcher
    me.start("cpu")
    with Kernel(me) as kernel:
        seen = environment(kernel, "NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "BERTH_SIMULATED")
    assert seen == {"NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": "", "BERTH_SIMULATED": "0"}
    lease = me.lease()
    assert (lease["share_milli"], lease["devices"], lease["simulated"]) == (0, [], False)
    me.stop()
    done = me.settled(lease["id"])
    assert (done["milli_gpu_seconds"], done["charged_micro_credits"]) == (0, 0)


def test_b02_everybody_sees_their_own_use_and_the_sums_are_the_ledger(stack: Stack) -> None:
    stack.researcher.start("gpu-1-8")
    lease = stack.researcher.lease()
    stack.researcher.stop()
    stack.researcher.settled(lease["id"])
    usage = stack.researcher.read("/me/usage")
    assert usage["charged_micro_credits"] == sum(line["charged_micro_credits"] for line in usage["items"])
    account = stack.admin.read(f"/accounts/{stack.researcher.name}")
    buckets = stack.admin.read(f"/accounts/{stack.researcher.name}/grants")["items"]
    granted = sum(bucket["amount_micro_credits"] for bucket in buckets)
    assert granted - account["available_micro_credits"] == usage["charged_micro_credits"]
    stranger = stack.add("stranger")
    assert stranger.leases() == []
    assert stranger.berth(f"/leases/{lease['id']}").status_code in (403, 404)
    assert stranger.berth(f"/accounts/{stack.researcher.name}").status_code in (403, 404)


def test_b04_stopping_frees_the_quota_at_once(stack: Stack) -> None:
    me = stack.researcher
    for server in ("", "one", "two"):
        me.start("cpu", server=server)
    assert "as many servers as you may" in me.refused({"profile": "cpu"}, server="three").words
    me.stop(server="one")
    me.start("cpu", server="three")
    for server in ("", "two", "three"):
        me.stop(server=server)


# ---- several people --------------------------------------------------------------------------------------------


def test_p17_the_board_tells_who_holds_what_since_when(stack: Stack) -> None:
    other = stack.add("colleague")
    stack.researcher.start("gpu-1-2")
    other.start("gpu-1-8")
    page = other.browser.get("/services/berth/board").text
    assert stack.researcher.name in page
    assert "1/2 GPU" in page
    assert "simulated" in page.lower()
    items = [lease for lease in stack.admin.leases() if lease["state"] == "RUNNING"]
    assert {(lease["holder"]["user"], lease["share_milli"]) for lease in items} == {
        ("researcher", 500),
        ("colleague", 125),
    }
    assert all(lease["started_at"] and len(lease["devices"]) == 1 for lease in items)
    stack.researcher.stop()
    other.stop()


def test_s19_an_admins_start_takes_the_default_and_the_users_own_account(stack: Stack) -> None:
    stack.add("alice")
    answer = stack.admin.ask_start(None, user="alice")
    assert answer.status_code in (201, 202), answer.text
    until(lambda: stack.admin.ready(user="alice"), 30, "alice's server is ready")
    lease = stack.admin.lease()
    assert lease["holder"]["user"] == lease["account"] == "alice"
    assert lease["profile"] == "cpu"
    assert lease["requested_by"] == "admin"
    stack.admin.stop(user="alice")


def test_an_admin_stops_a_server_and_the_lease_says_so(stack: Stack) -> None:
    stack.researcher.start("gpu-1-8")
    lease = stack.researcher.lease()
    assert stack.admin.ask_stop(user="researcher").status_code in (202, 204)
    done = stack.researcher.settled(lease["id"])
    assert done["stop_reason"] == "admin"


NAMES = ("a-b", "a_b", "a.b", "a@b.org", "用户", "n" * 80)


def test_s20_names_that_look_alike_have_their_own_homes_and_routes(stack: Stack) -> None:
    people = [stack.add(name) for name in NAMES]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda person: person.start("cpu"), people))
    homes = {p.environ()["JUPYTERHUB_USER"]: (p.environ()["HOME"], p.cwd()) for p in stack.server_processes()}
    assert homes.keys() == set(NAMES)
    assert all(home == folder for home, folder in homes.values())
    assert len(set(homes.values())) == len(NAMES)
    for person in people:
        Path(homes[person.name][0], "mine.txt").write_text(person.name, encoding="utf-8")
    for person in people:
        assert person.notebook("GET", "api/contents/mine.txt").json()["content"] == person.name
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda person: person.stop(), people))


@pytest.mark.parametrize(
    "name",
    ["a`) || HostRegexp(`.*", "../etc", "a b", "a/b", "n" * 81, "'; drop", "a\nb", "%2e%2e", "🚀"],
    ids=["backtick", "dots", "space", "slash", "81", "quote", "newline", "percent", "emoji"],
)
def test_s20_other_names_are_refused_at_log_in_with_words(stack: Stack, name: str) -> None:
    browser = stack.researcher.browser
    with type(browser)(base_url=stack.url, follow_redirects=True) as fresh:
        fresh.get("/hub/login")
        xsrf = next(c.value for c in fresh.cookies.jar if c.name == "_xsrf")
        password = stack.passwords()["researcher"]["password"]
        answer = fresh.post("/hub/login", data={"username": name, "password": password, "_xsrf": xsrf})
    assert answer.status_code in (400, 403)
    assert "name" in answer.text
    assert stack.answers()


def test_s20_x10_x18_a_look_alike_server_touches_neither_the_first_nor_its_files(stack: Stack) -> None:
    me = stack.researcher
    me.start("cpu", server="train")
    (first,) = (lease for lease in me.leases() if lease["state"] == "RUNNING")
    (home,) = (Path(server.environ()["HOME"]) for server in stack.server_processes())
    (home / "mine.txt").write_text("kept", encoding="utf-8")
    assert me.refused({"profile": "cpu"}, server="Train").status == 400  # the Hub's own rule
    assert me.ready("train") and me.lease(first["id"])["target"] == "RUN"
    me.stop(server="train")
    assert (home / "mine.txt").read_text(encoding="utf-8") == "kept", "no stop deletes what is a user's"


def test_x14_a_grant_by_hand_is_a_bucket_of_its_own_and_stays(stack: Stack) -> None:
    person = stack.add("granted")
    before = person.available()
    grant = {"amount_micro_credits": 5_000_000, "note": "for the thesis"}
    assert person.berth("/accounts/granted/grants", "POST", grant).status_code == 403
    answer = stack.admin.berth("/accounts/granted/grants", "POST", grant)
    assert answer.status_code == 201, answer.text
    with stack.admin.__class__(stack.url, "granted", stack.passwords()["researcher"]["password"]) as again:
        assert again.available() == before + 5_000_000  # a new log-in takes nothing away
