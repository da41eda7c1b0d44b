"""Which times hold for whom, on a real hub: rules by group, profile, class and time of day, a longest life that no
forged report outlives, wishes within policy and credit.

Nine people start servers at once; one wait, and the tests look at what became of each.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest

from hub_config.compose import parts
from tests.harness import Kernel, Person, Stack, lasted, until

pytestmark = pytest.mark.hub

IDLE, NOTICE, LIFE, KEEP = 12, 4, 40, 60
#: From a verdict to the end of the last process, on a machine that has much to do.
SLACK = 60
ZONE = "Asia/Shanghai"  # no summer time, and nowhere near UTC
PROFILES = {"plain": "0", "day": "0", "night": "0", "spare": "0", "kept": "1/8", "aged": "1/2", "whole": "1"}
#: Who starts what.
PEOPLE = {
    "student": "plain",
    "fellow": "plain",
    "early": "day",
    "late": "night",
    "guest": "spare",
    "keeper": "kept",
    "honest": "aged",
    "liar": "aged",
    "poor": "whole",
}
STAY = ("fellow", "late", "poor")
GO = tuple(name for name in PEOPLE if name not in STAY)


def hours(begin: float, end: float) -> str:
    """A time of day on the site's clock, by hours from now."""
    now = datetime.now(ZoneInfo(ZONE))
    return "-".join(f"{now + timedelta(hours=each):%H:%M}" for each in (begin, end))


def toml() -> str:
    """The window that holds on the site's clock does not on the machine's, and the other way round."""
    tables = "".join(
        f'[[profiles]]\nname = "{name}"\nshare = "{share}"\n' + ('class = "preemptible"\n' if name == "spare" else "")
        for name, share in PROFILES.items()
    )
    return f"""
[site]
time_zone = "{ZONE}"
[gpus]
source = "simulated"
simulated = 3
[first_start]
monthly_credits = 2
[save]
grace = "1 s"
by_hand = "off"
[[groups]]
name = "class"
{tables}
[idle]
with_gpu = "off"
without_gpu = "2 h"
notice = "{NOTICE} s"
check_every = "1 s"
[[idle.rules]]
groups = ["class"]
without_gpu = "{IDLE} s"
[[idle.rules]]
profiles = ["day"]
between = "{hours(-2, 2)}"
without_gpu = "{IDLE} s"
[[idle.rules]]
profiles = ["night"]
between = "{hours(-10, -6)}"
without_gpu = "{IDLE / 2:g} s"
[[idle.rules]]
classes = ["preemptible"]
without_gpu = "{IDLE} s"
[[idle.rules]]
profiles = ["kept", "aged"]
with_gpu = "{IDLE} s"
[[idle.rules]]
profiles = ["aged"]
max_age = "{LIFE} s"
"""


@dataclass
class Scene:
    """Of each lease the end and the last verdicts; of the liar all that was answered to what it sent."""

    ended: dict[str, dict[str, Any]] = field(default_factory=dict)
    verdicts: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    wishes: dict[str, httpx.Response] = field(default_factory=dict)
    lied: dict[str, list[int]] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("policies") / "data", toml()) as stack:
        assert stack.admin.hub("POST", "/groups/class").status_code == 201
        stack.add("student")
        assert stack.admin.hub("POST", "/groups/class/users", {"users": ["student"]}).status_code == 200
        yield stack


def token_of(person: Person) -> str:
    """The token of somebody's server, as any program in it can read it."""
    with Kernel(person) as kernel:
        return kernel.run("import os; print(os.environ['JUPYTERHUB_API_TOKEN'])").strip()


@contextmanager
def lying(person: Person, seen: Scene) -> Iterator[None]:
    """Whatever a user could do to look busy, with the server's own token, several times a second: reports of a cell
    that runs, words that the stop is to be taken back, activity told to the Hub; and pages that are read."""
    token, done = token_of(person), threading.Event()
    berth, hub = "/services/berth/api/v1/", f"/hub/api/users/{person.name}"

    def say(client: httpx.Client) -> None:
        now = datetime.now(UTC)
        moment = (now + timedelta(days=9)).isoformat()
        cell = {"id": "k", "busy": True, "last_execute_at": moment, "busy_since": now.isoformat()}
        report = {"kernels": [cell], "terminals": 3, "children": 3, "background": 9, "saved_at": moment}
        activity = {"servers": {"": {"last_activity": now.isoformat()}}, "last_activity": now.isoformat()}
        sent = {berth + "kit/signals": report, berth + "kit/used": {}, hub + "/activity": activity}
        for path, body in sent.items():
            code = client.post(path, json=body).status_code
            seen.lied.setdefault(path.rpartition("/")[2], []).append(code)
        person.browser.get("/hub/home")

    def lie() -> None:
        with httpx.Client(base_url=person.url, headers={"Authorization": f"token {token}"}, timeout=10) as client:
            while not done.wait(0.2):
                try:
                    say(client)
                except httpx.HTTPError:
                    continue

    thread = threading.Thread(target=lie, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def begin(stack: Stack, seen: Scene, going: ExitStack) -> dict[str, Person]:
    people = {name: stack.add(name) for name in PEOPLE}

    def start(name: str) -> None:
        person = people[name]
        person.start(PEOPLE[name], seconds=120)
        if name == "keeper":
            seen.wishes["kept"] = wish(person, "keep", seconds=KEEP)
        if name == "liar":
            going.enter_context(lying(person, seen))
            seen.wishes["aged"] = wish(person, "keep", seconds=3600)
            later = datetime.now(UTC) + timedelta(hours=1)
            seen.wishes["late"] = wish(person, "shutdown", at=later.isoformat())

    with ThreadPoolExecutor(3) as pool:
        for done in [
            pool.submit(start, name) for name in ("keeper", "liar", *sorted(PEOPLE.keys() - {"keeper", "liar"}))
        ]:
            done.result()
    return people


def wish(person: Person, what: str, **wanted: Any) -> httpx.Response:
    return person.berth(f"/leases/{person.lease()['id']}/{what}", "PUT", wanted)


@pytest.fixture(scope="module")
def scene(stack: Stack) -> Scene:
    """Start everybody, wait until those who are to go are gone, look at all."""
    seen = Scene()
    with ExitStack() as going:
        people = begin(stack, seen, going)
        until(lambda: all_gone(seen, people), KEEP + LIFE + 90, f"{GO} are stopped", every=0.5)
        before = len(seen.lied["signals"])
        until(lambda: len(seen.lied["signals"]) > before + 3, 30, "the liar goes on after its end")
    poor = people["poor"]
    for hours_ahead in (4, 3, 1):
        seen.wishes[f"{hours_ahead} h"] = wish(poor, "keep", seconds=hours_ahead * 3600)
    seen.ended |= {name: people[name].lease() for name in STAY}
    made = parts(stack.data)
    told = made.rows.events(seen.ended["liar"]["id"])
    made.store.close()
    seen.history = [dict(event.detail) for event in reversed(told) if event.kind == "idle-verdict"]
    return seen


def all_gone(seen: Scene, people: dict[str, Person]) -> bool:
    for name in GO:
        if name in seen.ended:
            continue
        lease = people[name].lease()
        if lease["idle"]:
            seen.verdicts.setdefault(name, {})[f"{lease['idle']['kind']}:{lease['idle']['rule']}"] = lease["idle"]
        if lease["state"] == "SETTLED":
            seen.ended[name] = lease
    return set(GO) <= seen.ended.keys()


def stopped_by(scene: Scene, name: str) -> str:
    """Why somebody's server was stopped, in words, for want of use and not before its time."""
    lease = scene.ended[name]
    assert lease["stop_reason"] == "idle", lease
    assert lasted(lease) >= IDLE
    return str(lease["stop_words"]) + str(scene.verdicts.get(name))


# ---- rules -------------------------------------------------------------------------------------------------------


def test_i13_a_rule_of_a_group_is_about_its_members_alone(scene: Scene) -> None:
    assert "idle.rules[1].without_gpu" in stopped_by(scene, "student")
    assert scene.ended["fellow"]["state"] == "RUNNING", "the same profile, the plain time"
    assert "idle.without_gpu" in scene.ended["fellow"]["idle"]["words"]


def test_i13_a_rule_of_a_time_of_day_holds_by_the_clock_of_the_site(scene: Scene) -> None:
    assert "idle.rules[2].without_gpu" in stopped_by(scene, "early")
    late = scene.ended["late"]
    assert late["state"] == "RUNNING" and "idle.without_gpu" in late["idle"]["words"], "its window is not open"


def test_i13_rules_of_a_class_and_of_profiles_name_themselves(scene: Scene) -> None:
    assert "idle.rules[4].without_gpu" in stopped_by(scene, "guest")
    assert "idle.rules[5].with_gpu" in stopped_by(scene, "honest")


# ---- the longest life ----------------------------------------------------------------------------------------------


def test_i14_no_forged_report_outlives_the_longest_life(scene: Scene) -> None:
    lease = scene.ended["liar"]
    assert scene.lied["signals"].count(200) > 8, "the lies were taken"
    assert "keep:busy-kernel" in scene.verdicts["liar"], "and believed: the honest one was stopped as idle"
    assert lease["stop_reason"] == "max-age", lease
    assert LIFE <= lasted(lease) < LIFE + SLACK, "no longer than a machine needs that has much to do"
    assert [(each["kind"], each["rule"]) for each in scene.history] == [("warn", "max-age"), ("reclaim", "max-age")]
    assert all("idle.rules[6].max_age" in each["words"] for each in scene.history)


def test_i14_the_lies_of_a_server_that_is_gone_reach_nobody(scene: Scene) -> None:
    assert scene.lied["signals"][-1] in (401, 403, 404), scene.lied["signals"][-5:]
    assert 200 in scene.lied["activity"] and scene.lied["activity"][-1] != 200
    assert set(scene.lied["used"]) <= {200, 401, 403, 404, 409, 429}
    assert scene.lied["used"][-1] in (401, 403, 404)


# ---- wishes ------------------------------------------------------------------------------------------------------


def test_i15_a_wish_to_be_kept_outlasts_the_rule_and_no_more(scene: Scene) -> None:
    assert scene.wishes["kept"].status_code == 200, scene.wishes["kept"].text
    assert "keep:kept" in scene.verdicts["keeper"]
    assert stopped_by(scene, "keeper")
    until_when = datetime.fromisoformat(scene.wishes["kept"].json()["keep_until"])
    ended = datetime.fromisoformat(scene.ended["keeper"]["ended_at"])
    assert timedelta(0) <= ended - until_when < timedelta(seconds=SLACK)


def test_i15_a_wish_is_cut_to_the_longest_life_and_an_end_beyond_it_refused(scene: Scene) -> None:
    cut, late = scene.wishes["aged"], scene.wishes["late"]
    assert (cut.status_code, cut.json()["bounded_by"]) == (200, "max-age"), cut.text
    started = datetime.fromisoformat(scene.ended["liar"]["started_at"])
    assert datetime.fromisoformat(cut.json()["keep_until"]) - started == timedelta(seconds=LIFE)
    assert (late.status_code, late.json()["reason"]) == (409, "time-too-late"), late.text


def test_i15_a_wish_is_bounded_by_policy_and_by_credit_and_what_fits_is_offered(scene: Scene) -> None:
    """Two credits at one an hour: not for three hours, but for one."""
    policy, credit, granted = (scene.wishes[which] for which in ("4 h", "3 h", "1 h"))
    assert (policy.json()["reason"], policy.json()["offer_seconds"]) == ("keep-too-long", 3 * 3600), policy.text
    assert (credit.json()["reason"], credit.json()["offer_seconds"]) == ("keep-no-credit", 3600), credit.text
    assert granted.status_code == 200, granted.text
    assert granted.json()["held_micro_credits"] >= 1_000_000
