"""The Docker backend's tables, and what an extra_config may not ask of containers."""

from __future__ import annotations

from typing import Any

import pytest

from hub_config.compose import profiles_of
from hub_config.extra_docker import unsafe
from hub_config.settings import SettingsError, parse

IMAGE = '[backend]\nkind = "docker"\n[[images]]\nname = "base"\nreference = "lab:1"\n'


def test_an_image_is_enough() -> None:
    settings = parse(IMAGE)
    assert settings.backend.kind == "docker" and settings.images[0].reference == "lab:1"
    assert settings.docker.homes == "volume" and settings.docker.user == "1000:100"


def test_the_command_line_goes_before_the_file() -> None:
    with pytest.raises(SettingsError, match="needs an image"):
        parse("", backend="docker")
    assert parse(IMAGE, backend="local").backend.kind == "local"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ('[docker]\nuser = "0"', "as root"),
        ('[docker]\nuser = "jovyan"', "numbers"),
        ('[docker]\nhomes = "/data/homes"', "{user}"),
        ('[docker]\nhomes = "/run/{user}/../docker.sock"', "absolute path"),
        ('[docker]\nsubnet = "10.0.0.1"', "no room"),
        ('[docker]\nsubnet = "everything"', "not a network"),
        ('[[images]]\nname = "base"\nreference = "lab:2"', "used twice"),
        ('[[images]]\nname = "two"\nreference = "lab 2"', "not the name of an image"),
        ('[[data]]\nsource = "/var/run"\ntarget = "/x"', "socket"),
        ('[[data]]\nsource = "data"\ntarget = "/x"', "absolute path"),
        ('[[data]]\nsource = "/a"\ntarget = "/x"\n[[data]]\nsource = "/b"\ntarget = "/x"', "a target of its own"),
        ('[[profiles]]\nname = "p"\nshare = 0\nimages = ["torch"]', "there is no image 'torch'"),
    ],
)
def test_what_makes_no_sense_is_told(more: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        parse(f"{IMAGE}{more}\n")


def test_a_profile_offers_the_images_it_names_and_the_local_backend_none_of_them() -> None:
    text = f'{IMAGE}[[profiles]]\nname = "p"\nshare = 0\nimages = ["base"]\n'
    assert profiles_of(parse(text))[0].images == ("base",)
    assert profiles_of(parse(text, backend="local"))[0].images == ()


@pytest.mark.parametrize(
    "given",
    [
        {"DockerSpawner": {"extra_host_config": {"privileged": True}}},
        {"DockerGpuSpawner": {"extra_host_config": {"cap_add": ["SYS_ADMIN"]}}},
        {"DockerSpawner": {"volumes": {"/var/run/docker.sock": "/var/run/docker.sock"}}},
        {"DockerSpawner": {"read_only_volumes": {"/run/docker.sock": "/s"}}},
        {"DockerSpawner": {"mounts": [{"source": "/run", "target": "/r", "type": "bind"}]}},
    ],
)
def test_p7_p8_an_extra_config_cannot_open_containers(given: dict[str, Any]) -> None:
    (words,) = unsafe(given)
    assert words.startswith("c.Docker") and "take it out" in words


def test_harmless_additions_pass() -> None:
    given = {
        "DockerSpawner": {"volumes": {"scratch": "/scratch", "/data": "/data"}, "extra_host_config": {"dns": ["1"]}}
    }
    assert list(unsafe(given)) == []
