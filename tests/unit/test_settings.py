"""`berth.toml`: what is read, and the one line that a mistake gives."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import get_args

import pytest
from pydantic import BaseModel

from hub_config.settings import COMMENTED, Settings, SettingsError, parse


def test_the_commented_file_says_the_defaults() -> None:
    assert parse(COMMENTED) == Settings()


def test_every_commented_line_is_valid_and_is_the_default() -> None:
    lines = []
    for line in COMMENTED.splitlines():
        if line.startswith("# Profiles"):
            break
        lines.append(line.removeprefix("# ") if " = " in line else line)
    assert parse("\n".join(lines)) == Settings()


def test_every_setting_is_in_the_commented_file() -> None:
    for name, table in Settings.model_fields.items():
        if isinstance(table.default, tuple):  # lists of tables: an example, the keys of which need not be all
            assert f"# [[{name}]]" in COMMENTED
            continue
        assert f"[{name}]" in COMMENTED
        for key in type(table.default).model_fields:
            assert f"# {key} = " in COMMENTED or f"# [[{name}.{key}]]" in COMMENTED, f"{name}.{key}"


def tables(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The model and all that its fields hold, directly or in lists."""
    yield model
    for field in model.model_fields.values():
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from tables(part)


def test_every_setting_is_described() -> None:
    found = list(tables(Settings))
    assert len(found) > 10, "the walk sees the tables"
    bare = [
        f"{table.__name__}.{name}"
        for table in found
        for name, field in table.model_fields.items()
        if not (field.description or "").strip().endswith(".")
    ]
    assert bare == [], "give each a sentence: Field(description=...)"


def test_values_are_read() -> None:
    settings = parse(
        '[gpus]\nsimulated = 1\n[idle]\nwith_gpu = "45 min"\nwithout_gpu = "off"\n'
        '[first_start]\nmonthly_credits = 2.5\nmax_gpus = "1/2"\n'
        '[[profiles]]\nname = "third"\nshare = "1/3"\n[[profiles]]\nname = "four"\nshare = 4\n'
    )
    assert settings.gpus.simulated == 1
    assert settings.idle.with_gpu == timedelta(minutes=45)
    assert settings.idle.without_gpu is None
    assert settings.first_start.monthly_credits == 2_500_000
    assert settings.first_start.max_gpus == 500
    assert [profile.share for profile in settings.profiles] == [333, 4000]


@pytest.mark.parametrize(
    ("text", "key", "remedy"),
    [
        pytest.param('[site]\nnam = "x"', "site.nam", "did you mean 'name'", id="unknown key"),
        pytest.param("[gpu]\nsimulated = 1", "'gpu'", "did you mean 'gpus'", id="unknown table"),
        pytest.param('[gpus]\nsimulated = "2"', "gpus.simulated", "whole number, without quotes", id="text for number"),
        pytest.param("[gpus]\nsimulated = true", "gpus.simulated", "whole number", id="bool for number"),
        pytest.param("[gpus]\nsimulated = -1", "gpus.simulated", "greater than or equal to 0", id="negative"),
        pytest.param('[gpus]\nmode = "mps"', "gpus.mode", "time-slice", id="unknown mode"),
        pytest.param('[backend]\nkind = "dockr"', "backend.kind", "local", id="unknown backend"),
        pytest.param("[idle]\nwith_gpu = 0", "idle.with_gpu", '"30 min"', id="zero is not off"),
        pytest.param('[idle]\nwith_gpu = "0 min"', "idle.with_gpu", '"30 min"', id="zero minutes"),
        pytest.param('[idle]\nnotice = "off"', "idle.notice", "5 min", id="notice cannot be off"),
        pytest.param('[site]\ntime_zone = "Mars"', "site.time_zone", "Europe/Berlin", id="time zone"),
        pytest.param('[site]\ntime_zone = "../../etc/passwd"', "site.time_zone", "Europe/Berlin", id="zone path"),
        pytest.param('[[profiles]]\nname = "a"\nshare = "1/0"', "profiles[1].share", "1/4", id="share by zero"),
        pytest.param('[[profiles]]\nname = "a"\nshare = "3/2"', "profiles[1].share", "whole number", id="share 3/2"),
        pytest.param('[[profiles]]\nname = "a"\nshare = -1', "profiles[1].share", "1/4", id="share below zero"),
        pytest.param('[[profiles]]\nname = "a"\nshare = "1/9999"', "profiles[1].share", "1/4", id="share too small"),
        pytest.param('[[profiles]]\nname = "A b"\nshare = 1', "profiles[1].name", "match pattern", id="profile name"),
        pytest.param('[[profiles]]\nname = "a"', "profiles[1].share", "needed", id="missing share"),
        pytest.param(
            '[[profiles]]\nname="a"\nshare=1\n[[profiles]]\nname="a"\nshare=1', "profiles", "twice", id="twice"
        ),
        pytest.param("profiles = 3", "profiles", "[[profiles]]", id="profiles no list"),
        pytest.param("site = 3", "site", "[section]", id="table no table"),
        pytest.param("[first_start]\nmonthly_credits = nan", "monthly_credits", "number of credits", id="nan credits"),
        pytest.param("[first_start]\nmonthly_credits = -5", "monthly_credits", "below zero", id="negative credits"),
        pytest.param("x =", "not valid TOML", "", id="no toml"),
    ],
)
def test_a_mistake_gives_one_line_with_file_key_and_remedy(text: str, key: str, remedy: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(text, "somewhere/berth.toml")
    words = str(caught.value)
    assert "\n" not in words
    assert words.startswith("somewhere/berth.toml: ")
    assert key in words
    assert remedy in words


def test_groups_open_profiles() -> None:
    found = parse(
        '[[groups]]\nname = "lab-a"\nleads = ["a", "a"]\n[[profiles]]\nname = "p"\nshare = 1\ngroups = ["lab-a"]'
    )
    assert (found.groups[0].leads, found.profiles[0].groups) == (("a",), ("lab-a",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[[profiles]]\nname = "p"\nshare = 1\ngroups = ["lab"]',
            "profiles p.groups: there is no group 'lab'; write a",
        ),
        (
            '[[groups]]\nname = "lab"\n[[profiles]]\nname = "p"\nshare = 1\ngroups = ["lan"]',
            "with that name; there are lab",
        ),
        ('[[groups]]\nname = "lab"\n[[groups]]\nname = "lab"', "the name 'lab' is used twice"),
        ('[[groups]]\nname = "lab"\nleads = "alice"', "groups[1].leads: 'alice' is not a list of names"),
        ('[[groups]]\nname = "lab"\npay = true', "unknown key 'groups[1].pay'; did you mean 'pays'?"),
        ('[[groups]]\nname = "group:lab"', "groups[1].name"),
        ("groups = 3", "groups: 3 does not do: write each one under a [[profiles]] or [[groups]] line"),
    ],
)
def test_a_mistake_in_groups_is_told(text: str, words: str) -> None:
    with pytest.raises(SettingsError) as error:
        parse(text)
    assert words in str(error.value) and "\n" not in str(error.value)
