"""A real Chromium, driven by Playwright. Without one the tests skip and say so."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Error, Page, Playwright, expect, sync_playwright

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


#: Milliseconds that a page may take on a machine that has much to do.
SLOW = 90_000
expect.set_options(timeout=30_000)

#: A Chromium that does not close a window for so long hangs.
HANGS = 60.0


def installed() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Chromium:
    """One Chromium, and another one where it hung and had to be ended."""

    def __init__(self, playwright: Playwright, path: str) -> None:
        self._playwright, self._path = playwright, path
        self._browser: Browser | None = None
        self._processes: list[psutil.Process] = []
        self._hung = threading.Event()

    @property
    def browser(self) -> Browser:
        if self._browser is None or not self._browser.is_connected():
            self._hung.clear()
            before = set(psutil.Process().children(recursive=True))
            self._browser = self._playwright.chromium.launch(executable_path=self._path, args=ARGS)
            self._processes = [each for each in psutil.Process().children(recursive=True) if each not in before]
        return self._browser

    def new_context(self, **options: Any) -> BrowserContext:
        """For a window or several, which wait as long as a machine may take that has much to do."""
        context = self.browser.new_context(**options)
        context.set_default_timeout(SLOW)
        return context

    @contextmanager
    def window(self, **options: Any) -> Iterator[BrowserContext]:
        """A context of its own."""
        context = self.new_context(**options)
        try:
            yield context
        finally:
            self.close(context)

    def _end(self) -> None:
        """Kill what was launched."""
        self._hung.set()
        for process in self._processes:
            if process.is_running():
                process.kill()

    def close(self, what: Browser | BrowserContext) -> None:
        """Close a window or the browser. Where it hangs in that, it is ended: what was tested has been tested."""
        timer = threading.Timer(HANGS, self._end)
        timer.start()
        try:
            what.close()
        except Error:
            if not self._hung.is_set():
                raise
        finally:
            timer.cancel()

    def quit(self) -> None:
        """Close the browser, if one was launched and lives."""
        if self._browser is not None and self._browser.is_connected():
            self.close(self._browser)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """One Chromium a module, closed with it: while it lives, its event loop runs in this thread and async tests of
    other folders could not."""
    path = installed()
    if path is None:
        pytest.skip("no Chromium on this machine: sudo apt install chromium")
    with sync_playwright() as playwright:
        made = Chromium(playwright, path)
        yield made
        made.quit()


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
