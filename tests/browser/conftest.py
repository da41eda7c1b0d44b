"""A real Chromium, driven by Playwright. Without one the tests skip and say so."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Error, Page, sync_playwright

from tests.harness import Stack

ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium a module, closed with it: while it lives, its event loop runs in this thread and async tests of
    other folders could not."""
    path = chromium()
    if path is None:
        pytest.skip("no Chromium on this machine: sudo apt install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=ARGS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def pictures() -> Path:
    """Where screenshots are kept: BERTH_PICTURES, or test-results/ in the checkout."""
    folder = Path(os.environ.get("PICTURES", Path(__file__).resolve().parents[2] / "test-results"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Visit:
    """One person's browser window, and what went wrong in it."""

    def __init__(self, page: Page, url: str, pictures: Path) -> None:
        self.page, self.url, self.pictures = page, url, pictures
        self.errors: list[str] = []
        self.theme = "light"
        page.on("pageerror", self._note)

    def _note(self, error: Error) -> None:
        """Errors of this site's pages; what goes wrong on a provider's own pages is not ours."""
        if self.page.url.startswith(self.url):
            self.errors.append(f"{error} on {self.page.url}: {error.stack}")

    def log_in(self, name: str, password: str) -> None:
        self.page.goto(f"{self.url}/hub/login")
        self.page.fill("#username_input", name)
        self.page.fill("#password_input", password)
        self.page.click("#login_submit")
        self.page.wait_for_url(lambda url: "/login" not in url)

    def open(self, path: str) -> None:
        answer = self.page.goto(self.url + path)
        assert answer is not None and answer.status == 200, f"{path}: {answer and answer.status}"

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def picture(self, name: str, *, full: bool = True) -> None:
        self.page.screenshot(path=self.pictures / f"{name}.png", full_page=full)

    def findings(self) -> list[str]:
        """What axe calls serious or critical on the page that is open, and whether it is wider than its window."""
        found = [
            f"{each['impact']} {each['id']}: {[node['target'] for node in each['nodes']]}"
            for each in Axe().run(self.page).response["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        width, window = self.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        return found + ([f"{width} px wide in a window of {window}"] if width > window else [])


def visit_as(window: Page, stack: Stack, pictures: Path, who: str) -> Visit:
    """A window in which one of the site's two log-ins is logged in."""
    made = Visit(window, stack.url, pictures)
    login = stack.passwords()[who]
    made.log_in(login["name"], login["password"])
    return made
