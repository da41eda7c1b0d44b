"""Where the secrets of a site are, and where they are not: logs, book, pages, process lists, files, sockets.

The site is started under a umask of 000, so that every mode is the product's own doing.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.harness import Stack, until
from tests.harness.stack import _command

pytestmark = pytest.mark.hub

WRONG = "a-wrong-password-that-nobody-has"
TYPED = "a-password-in-the-wrong-field-of-a-query"


ODD_PLACES = (
    "/hub/api/user",
    "/hub/home",
    "/hub/nothing",
    "/services/berth/",
    "/services/berth/api/v1/me",
    "/services/berth/api/v1/nothing",
    "/user/researcher/api/status",
    "/user/researcher/lab",
    "/user/nobody/tree",
)


class Story:
    """What happened on the site, and every secret that came up."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.secrets: dict[str, str] = {}
        self.pages: dict[str, str] = {}
        self.environments: dict[str, dict[str, str]] = {}

    def know(self, **found: str) -> None:
        self.secrets.update({name: value for name, value in found.items() if len(value) >= 16})

    def live(self) -> None:
        """A day in short: log-ins, good and bad; starts; reports; requests that fail with secrets in odd places."""
        stack, me, boss = self.stack, self.stack.researcher, self.stack.admin
        me.start("cpu")
        stack.add("second").start("cpu")
        me.browser.get("/services/berth/").raise_for_status()
        me.browser.get("/user/researcher/lab").raise_for_status()
        self.collect()
        with httpx.Client(base_url=stack.url) as nobody:
            nobody.get("/hub/login")
            xsrf = next(c.value or "" for c in nobody.cookies.jar if c.name == "_xsrf")
            self.know(xsrf=xsrf)
            form = {"username": "researcher", "password": WRONG, "_xsrf": xsrf}
            nobody.post("/hub/login", data=form)
            nobody.post(
                f"/hub/login?password={TYPED}&next=/x?token={me.token}", data={"username": "x", "password": WRONG}
            )
            for path in ODD_PLACES:
                for query in ("token=T", "next=%2Fx%3Ftoken%3DT", "access_token=T&_xsrf=1"):
                    nobody.get(f"{path}?{query.replace('T', me.token)}")
                headers = {"Authorization": f"token {me.token}x", "Cookie": f"service-berth={me.token}", "X": me.token}
                nobody.post(path, json={"token": me.token, "password": WRONG}, headers=headers)
        boss.hub("POST", "/users/second/tokens", {"note": "x", "token": me.token})
        me.berth("/kit/signals", "POST", {"token": me.token})
        for name, path in (("home", "/hub/home"), ("usage", "/services/berth/"), ("board", "/services/berth/board")):
            self.pages[name] = me.browser.get(path).text
        for path in ("/hub/admin", "/services/berth/admin", "/services/berth/admin?account=researcher"):
            self.pages[path] = boss.browser.get(path).text
        for path in ("/users", "/users/researcher", "/users/researcher/tokens", "/groups"):
            self.pages[f"hub{path}"] = boss.hub("GET", path).text
        for path in ("/me", "/leases", "/accounts", "/fleet", "/openapi.json", "/profiles"):
            self.pages[f"rest{path}"] = boss.berth(path).text
        self.pages["status"] = stack.run("status", "--json", code=None)
        stack.kill("berth")
        hub = stack.kill("hub")
        stack.wait_for_new("hub", hub)
        self.collect()
        me.stop()

    def collect(self) -> None:
        """Every secret in the data folder, in environments and in browsers."""
        stack = self.stack
        for path in (stack.data / "secrets").iterdir():
            text = path.read_text(encoding="utf-8")
            for number, word in enumerate(re.findall(r"[\w-]{16,}", text)):
                self.know(**{f"{path.name}/{number}": word})
        for role in ("admin", "researcher"):
            self.know(**{f"password of {role}": stack.passwords()[role]["password"]})
        for process in stack._leftover_processes():
            try:
                command, environment = " ".join(process.cmdline()), process.environ()
            except psutil.NoSuchProcess:
                continue
            self.environments[f"{process.pid} {command[:80]}"] = environment
            self.know(**{f"{process.pid}/{name}": environment[name] for name in environment if "TOKEN" in name})
        for person in (stack.researcher, stack.admin, stack.person("second")):
            self.know(**{f"token of {person.name}": person.token})
            for cookie in person.browser.cookies.jar:
                self.know(**{f"{person.name}'s {cookie.name} of {cookie.path}": (cookie.value or "").strip('"')})

    def found_in(self, text: str) -> list[str]:
        return [name for name, secret in {**self.secrets, "wrong": WRONG, "typed": TYPED}.items() if secret in text]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    before = os.umask(0)
    try:
        data = tmp_path_factory.mktemp("secrets") / "data"
        with Stack(data, '[gpus]\nsource = "simulated"\n') as stack:
            os.umask(before)
            story = Story(stack)
            story.live()
            yield story
    finally:
        os.umask(before)


def test_the_story_came_upon_the_secrets_that_are_looked_for(story: Story) -> None:
    names = " ".join(story.secrets)
    for kind in (
        "password of admin",
        "token of researcher",
        "JUPYTERHUB_API_TOKEN",
        "jupyterhub-hub-login",
        "service-berth",
    ):
        assert kind in names, kind
    for kind in ("jupyterhub-session-id", "_xsrf", "cookie_secret", "proxy", "berth_cookie", "metrics_token"):
        assert kind in names, kind
    assert len(set(story.secrets.values())) > 20
    assert story.found_in(f"x{WRONG}x") == ["wrong"]


def test_no_secret_is_in_a_log(story: Story) -> None:
    logs = [path for path in (story.stack.data / "logs").rglob("*") if path.is_file()]
    names = {path.name for path in logs}
    assert {"hub.log", "berth.log", "idle-culler.log", "agent.log"} <= names
    assert any("/nothing" in path.read_text(errors="replace") for path in logs), "the requests are in the logs"
    leaks = {path.name: found for path in logs if (found := story.found_in(path.read_text(errors="replace")))}
    assert not leaks, {
        name: [line[:300] for line in (story.stack.log(name) or "").splitlines() if story.found_in(line)][:3]
        for name in leaks
    }


def but_session_ids(found: list[str]) -> list[str]:
    """The Hub keeps the id of a session beside its tokens, to end them together; alone it opens nothing."""
    return [name for name in found if "session-id" not in name]


def test_no_secret_is_in_the_book_nor_a_readable_one_in_the_hubs_database(story: Story) -> None:
    data = story.stack.data
    for path in data.glob("book.sqlite*"):
        assert not story.found_in(path.read_bytes().decode("latin-1")), path.name
    for path in (data / "hub").glob("jupyterhub.sqlite*"):
        assert not but_session_ids(story.found_in(path.read_bytes().decode("latin-1"))), path.name


def test_no_secret_is_on_a_page_or_in_an_answer(story: Story) -> None:
    for name, text in story.pages.items():
        # A form carries its own token.
        found = [each for each in but_session_ids(story.found_in(text)) if "xsrf" not in each]
        assert not found, name
        assert text, name


def test_no_secret_is_in_a_process_list(story: Story) -> None:
    processes = story.stack._leftover_processes()
    assert len(processes) >= 7
    for process in processes:
        line = _command(process)
        assert not story.found_in(line), line
        assert not re.search(r"(?i)(token|password|secret)[=:]\S", line), line


def test_a_users_server_is_told_its_own_secrets_and_nobody_elses(story: Story) -> None:
    """(Its environment can be read by every process of the same system user: on this backend that is everybody.)"""
    servers = {
        name: env for name, env in story.environments.items() if "berth_lab.launch" in name and "runner" not in name
    }
    assert len(servers) >= 2
    for name, environment in servers.items():
        own = environment["JUPYTERHUB_API_TOKEN"]
        found = [each for each in story.found_in("\n".join(environment.values())) if story.secrets[each] != own]
        # What marks a server's processes as this site's is told to each of them.
        assert all(story.secrets[each] == environment.get("BERTH_DEPLOYMENT") for each in found), (name, found)
        assert not {"CONFIGPROXY_AUTH_TOKEN", "JUPYTERHUB_CRYPT_KEY", "BERTH_BOOK_PASSWORD", "BERTH_DATA"} & set(
            environment
        )


def private(path: Path) -> bool:
    return not stat.S_IMODE(path.lstat().st_mode) & 0o077


def loose(data: Path) -> list[str]:
    """What group or others could open below the data folder; in homes, the homes themselves."""
    found = []
    for folder, folders, files in os.walk(data):
        here = Path(folder)
        if here.parent == data / "homes":
            folders.clear()
            continue
        found += [str(here / name) for name in (*folders, *files) if not private(here / name)]
    return [name for name in found if not Path(name).is_symlink()]


def test_files_and_folders_are_their_owners_alone_whatever_the_umask(story: Story) -> None:
    data = story.stack.data
    ours = {str(data / name) for name in ("screen.log", "berth.toml")}  # written by this test itself
    assert set(loose(data)) <= ours
    assert (data / "homes" / "researcher").is_dir() and private(data / "homes" / "researcher")
    assert list((data / "runs").glob("*/spec.json")), "which holds a token"
    for path in (data / "homes").rglob("runtime/*"):
        assert private(path), path


def test_what_was_loosened_is_private_again_after_a_restart(story: Story) -> None:
    data = story.stack.data
    targets = [
        *(data / "secrets").iterdir(),
        data / "secrets",
        data / "logs",
        data / "logs" / "hub.log",
        data / "book.sqlite",
    ]
    for path in targets:
        path.chmod(path.stat().st_mode | 0o044)
    before = os.umask(0)
    try:
        story.stack.forget_people()
        assert story.stack.interrupt() == 0
        story.stack.up()
    finally:
        os.umask(before)
    assert not [path for path in targets if not private(path)]
    assert set(loose(data)) <= {str(data / "screen.log")}


def children(process: psutil.Process) -> list[psutil.Process]:
    """All its descendants; none where it has ended meanwhile."""
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def test_everything_listens_on_loopback_alone(story: Story) -> None:
    heard: dict[str, set[str]] = {}
    story.stack.researcher.start("cpu")
    for process in until(story.stack._leftover_processes, 10, "processes"):
        for child in (process, *children(process)):
            try:
                sockets = child.net_connections("inet")
                name = " ".join(child.cmdline())[:60]
            except psutil.NoSuchProcess:
                continue
            for plug in sockets:
                if plug.status == psutil.CONN_LISTEN or (
                    plug.status == psutil.CONN_NONE and plug.laddr and not plug.raddr
                ):
                    heard.setdefault(plug.laddr.ip, set()).add(name)
    assert set(heard) <= {"127.0.0.1", "::1"}, heard
    assert any("traefik" in name for name in heard["127.0.0.1"])
