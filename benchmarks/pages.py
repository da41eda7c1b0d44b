"""What a page costs who opens it for the first time: bytes over the wire, and when it can be used.

`python -m benchmarks.pages --json [--rounds 5]`

A real `berth up` with a server running, a real Chromium on the same machine, and for each look a window that has
nothing in its cache. `kb` is all that came over the wire for the page, headers, styles, scripts and fonts included
(the largest of the rounds); `interactive_ms` is the median time from the click until the document was read and every
script of it was there and had run. The exit code is 1 where a page has more than 300 kB or takes more than a second.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, machine, show

MOST_KB, MOST_MS = 300, 1000

PAGES = {
    "log-in": "/hub/login",
    "home": "/hub/home",
    "start": "/hub/spawn/admin/second",
    "token": "/hub/token",
    "not found": "/hub/no-such-page",
    "the Hub's admin page": "/hub/admin",
    "my usage": "/services/berth/",
    "who holds what": "/services/berth/board",
    "admin": "/services/berth/admin",
    "receipt": "/services/berth/lease/{lease}",
    "REST": "/services/berth/api",
}

#: When the document was read, or the last script arrived, whichever was later.
INTERACTIVE = """() => {
  const page = performance.getEntriesByType("navigation")[0];
  const scripts = performance.getEntriesByType("resource").filter(each => each.initiatorType === "script");
  return Math.max(page.domContentLoadedEventEnd, ...scripts.map(each => each.responseEnd));
}"""


def look(browser: Any, url: str, state: Any) -> dict[str, Any]:
    """One look with an empty cache."""
    context = browser.new_context(storage_state=state)
    try:
        page = context.new_page()
        sizes: list[float] = []
        wire = context.new_cdp_session(page)
        wire.send("Network.enable")
        wire.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
        page.goto(url, wait_until="networkidle")
        return {"bytes": sum(sizes), "requests": len(sizes), "ms": page.evaluate(INTERACTIVE)}
    finally:
        context.close()


def logged_in(browser: Any, url: str, login: dict[str, str]) -> Any:
    """The cookies of somebody who has logged in, at the service too."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{url}/hub/login")
    page.fill("#username_input", login["name"])
    page.fill("#password_input", login["password"])
    page.click("#login_submit")
    page.wait_for_url(lambda address: "/login" not in address)
    page.goto(f"{url}/services/berth/")
    state = context.storage_state()
    context.close()
    return state


def measure(rounds: int) -> dict[str, dict[str, Any]]:
    from playwright.sync_api import sync_playwright

    from tests.browser.conftest import ARGS, chromium  # a program of the clone, not of an installation
    from tests.harness import Stack

    found: dict[str, list[dict[str, Any]]] = {name: [] for name in PAGES}
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as folder, Stack(Path(folder) / "data") as stack:
        stack.admin.start("gpu-1-4")
        lease = stack.admin.lease()["id"]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=ARGS)
            state = logged_in(browser, stack.url, stack.passwords()["admin"])
            for _ in range(rounds + 1):
                for name, path in PAGES.items():
                    known = None if name == "log-in" else state
                    found[name].append(look(browser, stack.url + path.format(lease=lease), known))
            browser.close()
    return {name: figures(looks[1:]) for name, looks in found.items()}  # the first finds the service's own caches empty


def figures(looks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "kb": round(max(each["bytes"] for each in looks) / 1000, 1),
        "requests": max(each["requests"] for each in looks),
        "interactive_ms": round(statistics.median(each["ms"] for each in looks)),
        "slowest_ms": round(max(each["ms"] for each in looks)),
    }


def main(words: list[str] | None = None) -> int:
    parser = arguments("pages", __doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each page is opened (5)")
    options = parser.parse_args(words)
    before = machine()
    found = measure(options.rounds)
    wrong = [name for name, each in found.items() if each["kb"] > MOST_KB or each["interactive_ms"] > MOST_MS]
    setting = {"benchmark": "pages", "target_kb": MOST_KB, "target_ms": MOST_MS, "machine": before}
    show(setting | {"pages": found, "beyond": wrong, "load_after": machine()["load_1min"]}, options.json)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
