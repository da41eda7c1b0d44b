"""A server that is stopped from JupyterLab, and what the next one brings back, in a real browser on a real site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Chromium, Visit
from tests.browser.lab import LAB, SLOW, cookies, findings, open_lab, panel_of, window
from tests.harness import Stack

pytestmark = [pytest.mark.hub, pytest.mark.browser]

CELLS = ["kept = 6 * 7; handle = open('notes.txt', 'w')", "print(kept + 1)"]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("restore") / "data", '[save]\nby_hand = "45 s"\n') as running:
        running.researcher.start("gpu-1-4")
        yield running


@pytest.fixture
def visit(chromium: Chromium, stack: Stack, pictures: Path) -> Iterator[Visit]:
    with window(chromium, stack, cookies(chromium, stack), pictures) as made:
        yield made


def write_notebook(stack: Stack) -> None:
    cells = [
        {"cell_type": "code", "id": f"c{n}", "source": text, "metadata": {}, "outputs": [], "execution_count": None}
        for n, text in enumerate(CELLS)
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    book = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    model = {"type": "notebook", "format": "json", "content": book}
    assert stack.researcher.notebook("PUT", "api/contents/work.ipynb", json=model).status_code == 201


def run_cell(page: Page, number: int) -> None:
    expect(page.locator("#jp-main-statusbar")).to_contain_text("Python 3 (ipykernel) | Idle", timeout=SLOW)
    page.locator(".jp-Notebook .jp-CodeCell .cm-content").nth(number).click()
    page.keyboard.press("Shift+Enter")


def look_in_chinese(visit: Visit) -> None:
    """The same offer as a reader of Chinese sees it; the next look is in English again."""
    page = visit.page
    page.context.add_cookies([{"name": "berth-language", "value": "zh-CN", "url": visit.url}])
    page.goto(f"{visit.url}{LAB}?reset")
    offer = page.get_by_role("dialog").filter(has_text="恢复到上次的状态？")
    expect(offer.get_by_role("row", name="handle")).to_contain_text("打开的文件", timeout=SLOW)
    visit.picture("lab-restore-zh", full=False)
    page.context.add_cookies([{"name": "berth-language", "value": "en", "url": visit.url}])
    page.goto(f"{visit.url}{LAB}?reset")


def test_i24_what_a_stop_saved_is_offered_and_brought_back_by_one_press(visit: Visit, stack: Stack) -> None:
    me = stack.researcher
    write_notebook(stack)
    page = open_lab(visit, path="/tree/work.ipynb")
    expect(page.locator(".jp-Notebook .jp-CodeCell")).to_have_count(2, timeout=SLOW)
    run_cell(page, 0)
    expect(page.locator(".jp-InputPrompt").first).to_contain_text("[1]", timeout=SLOW)
    lease = me.lease()["id"]
    panel_of(page).get_by_role("button", name="Stop now").click()
    sure = page.get_by_role("dialog").filter(has_text="Stop this server now?")
    visit.picture("lab-stop-now", full=False)
    expect(sure.get_by_role("button", name="Go on working")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Nothing was changed.")).to_be_visible()
    assert me.lease(lease)["target"] == "RUN"
    panel_of(page).get_by_role("button", name="Stop now").click()
    sure.get_by_role("button", name="Stop now").click()
    assert me.settled(lease, seconds=120)["stop_reason"] == "user"

    me.start("gpu-1-4", seconds=120)
    page.goto(f"{visit.url}{LAB}?reset")
    offer = page.get_by_role("dialog").filter(has_text="Bring back where you were?")
    expect(offer).to_be_visible(timeout=SLOW)
    expect(offer.get_by_role("row", name="Kernels")).to_contain_text("1")
    expect(offer.get_by_role("row", name="Open documents")).to_contain_text("work.ipynb")
    expect(offer.get_by_role("row", name="handle")).to_contain_text("open file")
    visit.picture("lab-restore", full=False)
    assert findings(page, ".berth-panel") == []
    look_in_chinese(visit)
    expect(offer).to_be_visible(timeout=SLOW)
    offer.get_by_role("button", name="Restore").press("Enter")
    expect(page.get_by_text("All that was saved is back.")).to_be_visible(timeout=SLOW)
    expect(page.locator(".jp-Notebook .jp-CodeCell")).to_have_count(2, timeout=SLOW)
    run_cell(page, 1)
    expect(page.locator(".jp-Notebook .jp-OutputArea-output").last).to_contain_text("43", timeout=SLOW)
    page.reload()
    expect(page.locator("#berth-meter")).to_contain_text("credits/h", timeout=SLOW)
    expect(offer).to_have_count(0)  # it is asked once
