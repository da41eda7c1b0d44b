"""Profiles: what they mean, and that nonsense is refused with words."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from quota.leases import Device, DeviceState
from quota.units import MilliGpu
from spawner.profiles import (
    DEFAULT_PROFILES,
    MemoryRange,
    Profile,
    images_of,
    memory_words,
    profile_memory,
    show_gb,
)

BY_NAME = {profile.name: profile for profile in DEFAULT_PROFILES}


def card(uuid: str, memory_mib: int | None) -> Device:
    return Device("here", uuid, 0, "A10", memory_mib, "time-slice", False, DeviceState.OK)


def test_the_default_menu_is_the_promised_one() -> None:
    menu = [(profile.name, profile.share, profile.count, profile.title) for profile in DEFAULT_PROFILES]
    assert menu == [
        ("cpu", 0, 0, "CPU only"),
        ("gpu-1-8", 125, 1, "1/8 GPU"),
        ("gpu-1-4", 250, 1, "1/4 GPU"),
        ("gpu-1-2", 500, 1, "1/2 GPU"),
        ("gpu-1", 1000, 1, "1 GPU"),
        ("gpu-2", 1000, 2, "2 GPUs"),
    ]
    assert {profile.service_class for profile in DEFAULT_PROFILES} == {"on-demand"}


def test_p15_a_share_is_a_first_class_choice_shown_as_words() -> None:
    assert [profile.share_words for profile in DEFAULT_PROFILES] == [profile.title for profile in DEFAULT_PROFILES]
    assert [profile.name for profile in DEFAULT_PROFILES if profile.fractional] == ["gpu-1-8", "gpu-1-4", "gpu-1-2"]
    half = BY_NAME["gpu-1-2"]
    assert half.weight == 500
    assert memory_words(profile_memory([card("GPU-1", 24576)], half)) == "about 12 GB of GPU memory"


@pytest.mark.parametrize("name", [profile.name for profile in DEFAULT_PROFILES])
def test_descriptions_promise_no_amount_of_memory(name: str) -> None:
    """What a share means depends on the cards of the site."""
    assert "GB" not in BY_NAME[name].description
    assert BY_NAME[name].description.endswith(".")


def test_the_weight_counts_all_devices() -> None:
    assert [profile.weight for profile in DEFAULT_PROFILES] == [0, 125, 250, 500, 1000, 2000]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"name": "GPU 1"}, "not a name for a profile"),
        ({"name": "a" * 64}, "not a name for a profile"),
        ({"name": ""}, "not a name for a profile"),
        ({"title": " "}, "no title"),
        ({"share": 500}, "both 0"),
        ({"count": 1}, "both 0"),
        ({"share": -1, "count": 1}, "1 to 1000"),
        ({"share": 1001, "count": 1}, "1 to 1000"),
        ({"share": 1000, "count": -1}, "-1 is not a number of GPUs"),
        ({"share": 500, "count": 2}, "whole ones"),
        ({"cpu": 0.0}, "CPU cores"),
        ({"cpu": float("nan")}, "CPU cores"),
        ({"memory_mib": 0}, "amount of memory"),
    ],
)
def test_a_profile_that_makes_no_sense_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Profile(**{"name": "odd", "title": "Odd"} | values)


def test_a_profile_is_a_value() -> None:
    with pytest.raises(FrozenInstanceError):
        BY_NAME["cpu"].share = MilliGpu(1000)  # type: ignore[misc]
    assert Profile("cpu", "CPU only") == Profile("cpu", "CPU only")


def test_images_of_a_profile_keep_its_own_order() -> None:
    narrow = Profile("narrow", "Narrow", images=("b", "gone", "a"))
    assert images_of(narrow, ["a", "b", "c"]) == ("b", "a")
    assert images_of(BY_NAME["cpu"], ["a", "b"]) == ("a", "b")


def test_memory_of_a_share_is_a_range_over_the_cards() -> None:
    cards = [card("GPU-1", 24576), card("GPU-2", 81920)]
    assert profile_memory(cards, BY_NAME["gpu-1-8"]) == MemoryRange(3072, 10240)
    assert memory_words(profile_memory(cards, BY_NAME["gpu-1-8"])) == "3 to 10 GB of GPU memory, depending on the card"
    assert profile_memory(cards, BY_NAME["gpu-2"]) == MemoryRange(49152, 163840)


def test_unknown_memory_is_said_and_never_zero() -> None:
    assert profile_memory([card("GPU-1", None)], BY_NAME["gpu-1"]) is None
    assert profile_memory([], BY_NAME["gpu-1"]) is None
    assert profile_memory([card("GPU-1", 24576)], BY_NAME["cpu"]) is None
    assert memory_words(None) == ""
    mixed = profile_memory([card("GPU-1", 24576), card("GPU-2", None)], BY_NAME["gpu-1"])
    assert mixed == MemoryRange(24576, 24576, partial=True)
    assert memory_words(mixed) == "about 24 GB of GPU memory, where it is known"
    assert card("GPU-1", None).memory_for(500) is None
    assert card("GPU-1", 24577).memory_for(125) == 3072


@pytest.mark.parametrize(
    ("mib", "words"),
    [(24576, "24 GB"), (3072, "3 GB"), (1536, "1.5 GB"), (143771, "140 GB"), (10240, "10 GB"), (100, "0.1 GB")],
)
def test_memory_is_shown_as_people_speak_of_cards(mib: int, words: str) -> None:
    assert show_gb(mib) == words
