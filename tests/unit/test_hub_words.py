"""The Hub's own texts in the reader's language, wherever Berth extends its pages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import Environment

from hub_config.hub_words import STOCK, TIMES, HubWords, said_times
from quota import catalogues, i18n

HUB = Path(sys.prefix) / "share" / "jupyterhub" / "templates"


@pytest.fixture
def chinese(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    path = catalogues.HERE / "zh_CN" / "LC_MESSAGES" / "berth.po"
    monkeypatch.setitem(i18n._catalogues, "zh-CN", catalogues.read(path))
    with i18n.speaking("zh-CN"):
        yield


@pytest.mark.parametrize("name", STOCK)
def test_each_text_is_one_of_the_hubs(name: str) -> None:
    source = (HUB / name).read_text(encoding="utf-8")
    said = HubWords(Environment()).preprocess(source, f"templates/{name}")
    assert [words for words in STOCK[name] if f"_({words!r})" not in said] == [], "the Hub words it differently now"


def test_a_page_says_which_language_it_is_in_and_who_it_is_for(chinese: None) -> None:
    environment = Environment(extensions=[HubWords], autoescape=True)
    source = '<html lang="en"><p>Spawning server for {{ for_user.name }}</p><b>{{ _("Home") }}</b>'
    shown = environment.from_string(source).render(for_user={"name": "<ada>"})
    assert shown == '<html lang="zh-CN"><p>为 &lt;ada&gt; 启动</p><b>首页</b>'


def test_how_long_a_token_may_live(chinese: None) -> None:
    options = "".join(f'<option value="1">{words}</option>' for words in TIMES)
    assert said_times(options).count("<option") == len(TIMES)
    assert "1 小时" in said_times(options) and "Hour" not in said_times(options)
