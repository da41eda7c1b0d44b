"""Log-in by accounts of this machine, made for this test and removed after it, on a real hub."""

from __future__ import annotations

import grp
import os
import pwd
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness import Person, Stack

_TOOLS = ("useradd", "userdel", "usermod", "groupadd", "groupdel", "gpasswd", "chpasswd")
_CAN = os.geteuid() == 0 and all(map(shutil.which, _TOOLS)) and Path("/etc/pam.d/login").exists()

pytestmark = [
    pytest.mark.hub,
    pytest.mark.skipif(not _CAN, reason="accounts of this machine can be made by root alone, with useradd and PAM"),
]

PASSWORD = secrets.token_urlsafe(15)


class Machine:
    """Two accounts and a group by names that nobody else has."""

    def __init__(self) -> None:
        mark = secrets.token_hex(3)
        self.ada, self.bob, self.group = (f"berth-t-{name}-{mark}" for name in ("ada", "bob", "lab"))
        self.gid = self.bob_uid = 0

    def make(self) -> None:
        run("groupadd", self.group)
        self.gid = grp.getgrnam(self.group).gr_gid
        for name in (self.ada, self.bob):
            run("useradd", "--no-create-home", "--shell", "/usr/sbin/nologin", name)
            run("chpasswd", told=f"{name}:{PASSWORD}\n")
        run("gpasswd", "-a", self.ada, self.group)

    def remove(self) -> None:
        for name in (self.ada, self.bob):
            if any(each.pw_name == name for each in pwd.getpwall()):
                run("userdel", name)
        if any(each.gr_name == self.group for each in grp.getgrall()):
            run("groupdel", self.group)


def run(*argv: str, told: str | None = None) -> None:
    subprocess.run(argv, check=True, capture_output=True, text=True, input=told)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    made = Machine()
    try:
        made.make()
        yield made
    finally:
        made.remove()


@pytest.fixture(scope="module")
def site(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    toml = f"""
[auth]
kind = "pam"
admins = ["{machine.bob}"]
[[auth.groups]]
id = {machine.gid}
group = "lab"
[[groups]]
name = "lab"
[[profiles]]
name = "lab"
share = 0
groups = ["lab"]
"""
    with Stack(tmp_path_factory.mktemp("pam") / "data", toml) as stack:
        yield stack


def log_in(site: Stack, name: str, password: str) -> httpx.Response:
    with httpx.Client(base_url=site.url, follow_redirects=True, timeout=60) as browser:
        browser.get("/hub/login")
        xsrf = next(cookie.value for cookie in browser.cookies.jar if cookie.name == "_xsrf")
        return browser.post("/hub/login", data={"username": name, "password": password, "_xsrf": xsrf})


def test_s17_s19_groups_by_gid_read_anew_and_who_is_gone_starts_nothing(site: Stack, machine: Machine) -> None:
    assert "Invalid username or password" in log_in(site, machine.ada, "a wrong one").text
    assert "Invalid username or password" in log_in(site, "root", PASSWORD).text
    with Person(site.url, machine.ada, PASSWORD) as ada, Person(site.url, machine.bob, PASSWORD) as bob:
        assert (ada.model()["groups"], ada.model()["admin"]) == (["lab"], False)
        assert (bob.model()["groups"], bob.model()["admin"]) == ([], True)
        ada.start("lab")
        ada.stop()
        assert bob.refused({"profile": "lab"}).status == 403
        run("gpasswd", "-d", machine.ada, machine.group)
        for who in (ada, bob):
            assert who.refused({"profile": "lab"}, user=machine.ada).status == 403
        assert ada.model()["groups"] == []
        run("usermod", "--expiredate", "1", machine.bob)
        assert "may use this site" in bob.refused({"profile": "lab"}).words
        run("usermod", "--expiredate", "", machine.bob)
        run("userdel", machine.bob)
        assert "may use this site" in bob.refused({"profile": "lab"}).words
    assert PASSWORD not in site.logs(100_000)
