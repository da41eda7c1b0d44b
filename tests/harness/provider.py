"""A real OpenID provider beside a deployment, and people who log in through it as a browser does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from tests.harness.person import Person

PASSWORD = "a long enough password"  # as in canaille_site.py
_TOKEN = re.compile(r'name="csrf_token"[^>]*value="([^"]+)"')


class Provider:
    """Canaille in a process of its own. `back` is the address of the Berth that it serves."""

    def __init__(self, port: int, back: str) -> None:
        self.port, self.back = port, back
        self.process: subprocess.Popen[str] | None = None

    @property
    def issuer(self) -> str:
        """Another host than Berth's, so that the two do not share cookies."""
        return f"http://localhost:{self.port}"

    def toml(self, more: str = "") -> str:
        """`[auth]` for this provider; `more` are further lines of that table."""
        return (
            f'[auth]\nkind = "oidc"\nissuer = "{self.issuer}"\nclient_id = "berth"\n'
            f'secret_file = "secrets/provider"\nscopes = ["openid", "profile", "email", "groups"]\n{more}'
        )

    def write_secret(self, data: Path) -> None:
        folder = data / "secrets"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "provider").write_text("the client's secret\n", encoding="utf-8")

    def start(self) -> Self:
        script = Path(__file__).with_name("canaille_site.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(self.port), f"{self.back}/hub/oauth_callback"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._line() == "ready"
        return self

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                if pipe:
                    pipe.close()
            self.process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def do(self, what: str, **words: Any) -> None:
        """One of the commands of canaille_site.py; returns when it is done."""
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, **words}) + "\n")
        self.process.stdin.flush()
        assert self._line() == "done"

    def _line(self) -> str:
        assert self.process is not None and self.process.stdout is not None
        return self.process.stdout.readline().strip()


class Member(Person):
    """Somebody who logs in through the provider; `name` is the name there."""

    def _log_in(self, password: str) -> None:
        answer = log_in(self.browser, self.name, password)
        assert answer.status_code == 200, f"log-in of {self.name}: {answer.status_code} {answer.text[-1500:]}"
        assert urlsplit(str(answer.url)).path.startswith("/hub/"), str(answer.url)


def log_in(browser: httpx.Client, name: str, password: str = PASSWORD) -> httpx.Response:
    """Through the provider's two forms, and back; the last answer, whatever it is."""
    page = browser.get("/hub/oauth_login", params={"next": "/hub/home"})
    for field, value in (("login", name), ("password", password)):
        found = _TOKEN.search(page.text)
        if found is None:
            return page
        page = browser.post(str(page.url), data={"csrf_token": found[1], field: value})
    return page
