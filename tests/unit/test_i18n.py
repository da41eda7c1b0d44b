"""Which language a reader gets, and that it reaches threads and tasks but no other reader."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota import catalogues, i18n
from quota.i18n import _, _n, negotiate

PO = """\
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=1; plural=0;\\n"

msgid "Free now: %(what)s"
msgstr "现在可用：%(what)s"

msgid "%(n)s server"
msgid_plural "%(n)s servers"
msgstr[0] "%(n)s 个服务器"

#, fuzzy
msgid "Not sure"
msgstr "也许"
"""


@pytest.fixture
def chinese(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "berth.po"
    path.write_text(PO, encoding="utf-8")
    monkeypatch.setitem(i18n._catalogues, "zh-CN", catalogues.read(path))


@pytest.mark.parametrize(
    ("chosen", "accepted", "wanted"),
    [
        (None, None, None),
        ("zh-CN", "en", "zh-CN"),
        ("xx", "zh", "zh-CN"),
        (None, "zh-TW,zh;q=0.9", "zh-CN"),
        (None, "de, fr;q=0.9, en-GB;q=0.5", "en"),
        (None, "en;q=0.3, zh-Hans-CN;q=0.8", "zh-CN"),
        (None, "zh;q=0, en", "en"),
        (None, "*", None),
        (None, "zhu", None),
        (None, ";;q=1,,\x00, en;q=2", None),
    ],
)
def test_the_language_of_a_reader(chosen: str | None, accepted: str | None, wanted: str | None) -> None:
    assert negotiate(chosen, accepted) == wanted


@given(st.text(), st.text())
def test_any_header_has_an_answer(chosen: str, accepted: str) -> None:
    assert negotiate(chosen, accepted) in (None, *i18n.LANGUAGES)


def test_words_numbers_and_what_nobody_translated(chinese: None) -> None:
    assert (_("Free now: %(what)s", what="1/4"), _n("%(n)s server", "%(n)s servers", 2)) == (
        "Free now: 1/4",
        "2 servers",
    )
    with i18n.speaking("zh-CN"):
        assert _("Free now: %(what)s", what="1/4") == "现在可用：1/4"
        assert _n("%(n)s server", "%(n)s servers", 1) == "1 个服务器"
        assert _("Not sure") == "Not sure", "what a translator was not sure of is said in English"
        assert _("50% of it") == "50% of it"
    assert i18n.language() == "en"


async def test_each_request_speaks_its_own_language(chinese: None) -> None:
    async def request(tag: str) -> list[str]:
        i18n.use(tag)
        await asyncio.sleep(0)
        return [i18n.language(), await asyncio.to_thread(_, "Free now: %(what)s")]

    answers = await asyncio.gather(request("zh-CN"), request("en"))
    assert answers == [["zh-CN", "现在可用：%(what)s"], ["en", "Free now: %(what)s"]]


def test_the_site_s_language_where_nobody_asks(chinese: None) -> None:
    try:
        i18n.set_default("zh-CN")
        assert _("Free now: %(what)s", what=1) == "现在可用：1"
    finally:
        i18n.set_default("en")
    with pytest.raises(KeyError):
        i18n.set_default("fr")
