"""A site in the reader's language: as the browser asks, by the switch at the foot of a page, and for programs."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Chromium, Visit
from tests.harness import Stack

pytestmark = [pytest.mark.hub, pytest.mark.browser]

CHINESE = {"Accept-Language": "zh-CN,zh;q=0.9,en;q=0.5"}
#: Shown as they are: names, units, formats, keys, and what people are called.
SAME = (
    r"Berth|JupyterLab|JupyterHub|Hub|GPU|CPU|REST|CSV|UTC|GB|MB|MiB|NVIDIA|UUID|SIM|agent|English|researcher|admin|cpu|gpu|gpu-|"
    r"JSON|Slack|Teams|Mattermost|Lark|webhook|nohup|berth\.toml|idle\.with_gpu|idle\.without_gpu|env|py|Python|none|default|openapi\.json|OpenAPI|host"
)
WINDOWS = {"desk": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("languages") / "data") as running:
        yield running


@pytest.fixture(params=WINDOWS)
def window(request: pytest.FixtureRequest, chromium: Chromium) -> Iterator[Page]:
    context = chromium.new_context(viewport=WINDOWS[request.param], locale="zh-CN")  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(20_000)
    yield page
    chromium.close(context)


def latin(page: Page) -> list[str]:
    """Words in Latin letters that a reader sees, but for those of `SAME` and what is code."""
    shown = page.evaluate(
        """() => {
          const out = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
          while (walk.nextNode()) {
            const node = walk.currentNode, parent = node.parentElement;
            if (!node.data.trim() || parent.closest("code,pre,script,style,noscript,.modal,.berth-uuid")) continue;
            if (parent.checkVisibility() || parent.closest(".visually-hidden,option")) out.push(node.data);
          }
          return out;
        }"""
    )
    shown = [text.replace(socket.gethostname(), "") for text in shown]  # this machine's own name
    words = [word for text in shown for word in re.findall(r"[A-Za-z][A-Za-z.'_-]+", text)]
    return sorted({word for word in words if not re.fullmatch(rf"(?:{SAME})[.]?", word)})


def test_a_browser_that_asks_for_chinese_gets_it_everywhere(window: Page, stack: Stack, pictures: Path) -> None:
    visit = Visit(window, stack.url, pictures)
    size = "phone" if window.viewport_size and window.viewport_size["width"] < 500 else "desk"
    answer = window.goto(f"{stack.url}/hub/login")
    assert answer is not None and answer.headers["content-language"] == "zh-CN"
    assert window.get_attribute("html", "lang") == "zh-CN"
    assert latin(window) == []
    login = stack.passwords()["admin"]
    visit.log_in(login["name"], login["password"])
    for path, name in {
        "/hub/home": "home",
        "/hub/spawn": "start",
        "/services/berth/": "usage",
        "/services/berth/board": "board",
        "/services/berth/notices": "notices",
        "/services/berth/starts": "starts",
        "/services/berth/admin": "admin",
    }.items():
        visit.open(path)
        visit.picture(f"zh-{name}-{size}")
        assert window.get_attribute("html", "lang") == "zh-CN", path
        assert (path, latin(window), visit.findings()) == (path, [], [])
    assert not visit.errors


def test_the_switch_at_the_foot_goes_for_hub_and_pages(window: Page, stack: Stack, pictures: Path) -> None:
    visit = Visit(window, stack.url, pictures)
    login = stack.passwords()["researcher"]
    visit.log_in(login["name"], login["password"])
    visit.open("/services/berth/?month=2026-03")
    window.get_by_role("button", name="English").click()
    expect(window.locator("html")).to_have_attribute("lang", "en")
    assert window.url.endswith("/services/berth/?month=2026-03"), "the same page as before"
    visit.open("/hub/home")
    assert window.get_attribute("html", "lang") == "en"
    window.get_by_role("button", name="简体中文").click()
    expect(window.locator("html")).to_have_attribute("lang", "zh-CN")
    pressed = window.get_by_role("button", name="简体中文").get_attribute("aria-pressed")
    cookie = next(each for each in window.context.cookies() if each["name"] == "berth-language")
    assert (pressed, cookie["value"], cookie["path"], cookie["sameSite"]) == ("true", "zh-CN", "/", "Lax")


def test_a_refusal_is_in_the_asker_s_language_and_its_reason_in_none(stack: Stack) -> None:
    me = stack.researcher
    for headers, words in ((CHINESE, "没有配置“h100”"), ({"Accept-Language": "de"}, "There is no profile “h100”")):
        answer = me.api.post(f"/hub/api/users/{me.name}/server", json={"profile": "h100"}, headers=headers)
        assert answer.status_code == 400 and words in answer.json()["message"]
    path = f"{stack.url}/services/berth/api/v1/me/usage?from=never"
    told = [httpx.get(path, headers={"Authorization": f"token {me.token}", **more}) for more in ({}, CHINESE)]
    assert [answer.headers["content-language"] for answer in told] == ["en", "zh-CN"]
    assert {answer.json()["reason"] for answer in told} == {"date-invalid"}
    assert "不是" in told[1].json()["detail"] and "is not a moment" in told[0].json()["detail"]
