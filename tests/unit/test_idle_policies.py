"""Which idle times hold for whom and when, from `berth.toml` to the policy of one lease."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from hub_config.settings import SettingsError, parse
from idle_culler.decide import Policy
from idle_culler.policies import PolicyRule, holds, policy_of
from quota.leases import ServiceClass
from tests.fakes.use import lease

BERLIN = ZoneInfo("Europe/Berlin")
PLAIN = Policy(1800, 7200)
MONDAY = datetime(2026, 3, 2, 12, tzinfo=BERLIN)


def local(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN)


def test_i13_the_first_rule_that_fits_and_sets_a_key_wins() -> None:
    rules = [
        PolicyRule(1, {"with_gpu": 60}, profiles=frozenset({"gpu-9"})),
        PolicyRule(2, {"with_gpu": 600}, profiles=frozenset({"gpu-1"})),
        PolicyRule(3, {"with_gpu": 900, "max_age": 3600, "gpu_idle": None}),
    ]
    policy = policy_of(PLAIN, rules, lease(), MONDAY)
    assert (policy.idle_gpu, policy.idle_cpu, policy.max_age, policy.gpu_idle) == (600, 7200, 3600, None)
    keys = [policy.key(name) for name in ("idle_gpu", "idle_cpu", "max_age")]
    assert keys == ["idle.rules[2].with_gpu", "idle.without_gpu", "idle.rules[3].max_age"]
    assert policy_of(PLAIN, [], lease(), MONDAY) is PLAIN


def test_i13_by_class_and_by_group() -> None:
    rules = [
        PolicyRule(1, {"with_gpu": 300}, classes=frozenset({"preemptible"})),
        PolicyRule(2, {"with_gpu": None}, groups=frozenset({"lab-a"})),
    ]
    of = [
        lease(service_class=ServiceClass.PREEMPTIBLE, groups=("lab-a",)),
        lease(groups=("lab-a", "lab-b")),
        lease(groups=("lab-b",)),
        lease(groups=None),
    ]
    assert [policy_of(PLAIN, rules, each, MONDAY).idle_gpu for each in of] == [300, None, 1800, 1800]


NIGHT = PolicyRule(1, {"with_gpu": 28800}, between=(22 * 60, 6 * 60))
FRIDAY_NIGHT = PolicyRule(1, {"with_gpu": 28800}, between=(22 * 60, 6 * 60), days=frozenset({4}))
WEEKEND = PolicyRule(1, {"with_gpu": None}, days=frozenset({5, 6}))
DAY = PolicyRule(1, {"with_gpu": 60}, between=(9 * 60, 24 * 60))


@pytest.mark.parametrize(
    ("rule", "moment", "expected"),
    [
        (NIGHT, "2026-03-02T21:59:59", False),
        (NIGHT, "2026-03-02T22:00:00", True),
        (NIGHT, "2026-03-03T05:59:59", True),
        (NIGHT, "2026-03-03T06:00:00", False),
        (FRIDAY_NIGHT, "2026-03-06T22:00:00", True),
        (FRIDAY_NIGHT, "2026-03-07T05:00:00", True),
        (FRIDAY_NIGHT, "2026-03-06T05:00:00", False),
        (FRIDAY_NIGHT, "2026-03-07T22:00:00", False),
        (WEEKEND, "2026-03-07T00:00:00", True),
        (WEEKEND, "2026-03-09T00:00:00", False),
        (DAY, "2026-03-02T23:59:59", True),
        (DAY, "2026-03-03T00:00:00", False),
        (NIGHT, "2026-03-29T03:30:00", True),  # the night without an hour between 2 and 3
        (NIGHT, "2026-10-25T02:30:00", True),  # the night with two of them
    ],
)
def test_windows_are_half_open_and_belong_to_the_day_on_which_they_begin(
    rule: PolicyRule, moment: str, expected: bool
) -> None:
    assert holds(rule, local(moment)) is expected


def test_the_night_is_an_hour_shorter_and_longer_when_the_clock_changes() -> None:
    lengths = []
    for night in ("2026-03-27", "2026-03-28", "2026-10-24"):
        start = local(f"{night}T12:00").timestamp()
        times = [datetime.fromtimestamp(start + 60 * minute, BERLIN) for minute in range(24 * 60)]
        lengths.append(sum(holds(NIGHT, moment) for moment in times) / 60)
    assert lengths == [8, 7, 9]


TOML = """
[idle]
gpu_idle = "2 h"
[[idle.rules]]
profiles = ["gpu-1"]
classes = ["reserved"]
groups = ["lab-a"]
between = "22:00-06:00"
days = ["mon", "fri"]
with_gpu = "off"
[[idle.rules]]
max_age = "12 h"
[[groups]]
name = "lab-a"
[[profiles]]
name = "gpu-1"
share = 1
class = "reserved"
"""


def test_rules_are_read_and_off_differs_from_not_set() -> None:
    first, second = parse(TOML).idle.rules
    assert (first.between, first.days, first.classes) == ((1320, 360), ("mon", "fri"), ("reserved",))
    assert first.values() == {"with_gpu": None} and [*second.values()] == ["max_age"]
    assert parse(TOML).profiles[0].service_class == "reserved"


@pytest.mark.parametrize(
    ("text", "key", "remedy"),
    [
        ("[[idle.rules]]\nmax_age = 0", "idle.rules[1].max_age", '"off" for never'),
        ('[[idle.rules]]\nwith_gpu = "0 h"', "idle.rules[1].with_gpu", '"off" for never'),
        ('[[idle.rules]]\nnotice = "off"', "idle.rules[1].notice", "write a duration"),
        ('[[idle.rules]]\nprofiles = ["cpu"]', "idle.rules[1]", "it sets nothing; add at least one of with_gpu"),
        ('[[idle.rules]]\nprofiles = ["tpu"]\nmax_age = "1 h"', "idle.rules[1].profiles", "no profile 'tpu'"),
        ('[[idle.rules]]\ngroups = ["x"]\nmax_age = "1 h"', "idle.rules[1].groups", "no group 'x'"),
        ('[[idle.rules]]\nclasses = ["gold"]\nmax_age = "1 h"', "idle.rules[1].classes", "reserved, on-demand"),
        ('[[idle.rules]]\ndays = ["monday"]\nmax_age = "1 h"', "idle.rules[1].days", "mon, tue"),
        ("[[idle.rules]]\ndays = []\nmax_age = '1 h'", "idle.rules[1].days", "some of mon"),
        ('[[idle.rules]]\nbetween = "22-6"\nmax_age = "1 h"', "idle.rules[1].between", '"22:00-06:00"'),
        ('[[idle.rules]]\nbetween = "06:00-06:00"\nmax_age = "1 h"', "idle.rules[1].between", "is empty"),
        ('[[idle.rules]]\nmaxage = "1 h"', "idle.rules[1].maxage", "did you mean 'max_age'"),
        ("[idle]\nrules = 3", "idle.rules", "[[idle.rules]]"),
        ("[idle]\ngpu_idle = 0", "idle.gpu_idle", '"off" for never'),
        ('[[profiles]]\nname = "a"\nshare = 1\nclass = "gold"', "profiles[1].class", "on-demand"),
        ('[[profiles]]\nname = "a"\nshare = 1\nclas = "reserved"', "profiles[1].clas", "did you mean 'class'"),
    ],
)
def test_a_mistake_in_idle_rules_gives_one_line(text: str, key: str, remedy: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(text)
    words = str(caught.value)
    assert words.startswith(f"berth.toml: {key}") or f"unknown key {key!r}" in words, words
    assert remedy in words and "\n" not in words
