"""A placeholder for which nothing is put in is an error when Berth starts, not a surprise in somebody's server."""

from __future__ import annotations

import pytest

from hub_config.placeholders import unknown
from hub_config.settings import SettingsError, parse


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[site]\nname = "Lab of {username}"', "site.name: {username}"),
        ('[hub]\nextra_config = "{user.name}.py"', "hub.extra_config: {user.name}"),
        ('[[profiles]]\nname = "a"\nshare = 0\ntitle = "{x}"', "profiles[1].title: {x}"),
    ],
)
def test_x20_a_placeholder_in_berth_toml_is_an_error(text: str, key: str) -> None:
    with pytest.raises(SettingsError, match="nothing is put in for it here") as error:
        parse(text)
    assert key in str(error.value)


def test_x20_braces_that_are_no_placeholder_stay() -> None:
    assert parse('[site]\nname = "{ a, b } {}"').site.name == "{ a, b } {}"


@pytest.mark.parametrize("text", ["/user/{usernme}", "{}", "/a/{username", "{username.__class__}", "{0}"])
def test_x20_an_unknown_placeholder_of_the_hub_is_an_error(text: str) -> None:
    words = unknown({"LocalGpuSpawner": {"notebook_dir": text}})
    assert words is not None
    assert words.startswith(f"c.LocalGpuSpawner.notebook_dir = {text!r}: ")
    assert words.endswith("; known are base_url, username")


def test_x20_known_ones_are_fine() -> None:
    config = {
        "Spawner": {"default_url": "{base_url}lab", "notebook_dir": "/data/{username}"},
        "GpuSpawner": {"wire": 1},
    }
    assert unknown(config) is None
    assert unknown({}) is None
