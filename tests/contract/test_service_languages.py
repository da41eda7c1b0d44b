"""Every page of the service in a language whose words are all marked: what is not marked, nobody can translate."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from gettext import NullTranslations
from pathlib import Path

import pytest

from quota import i18n
from quota.leases import StopReason
from tests.contract.service_reading import words
from tests.fakes.book import open_desk
from tests.fakes.service import open_service

#: Data and names, and units that are the same everywhere.
SAME = r"alice|boss|bob|Berth|GPU|CPU|CSV|UTC|GB|SIM|test|cpu|gpu|env|h1|two|English|REST|lse|admin|not-found"


class Marked(NullTranslations):
    """⟦…⟧ around each message, and around its values again where they are messages."""

    def gettext(self, message: str) -> str:
        return f"⟦{message}⟧"

    def ngettext(self, one: str, many: str, n: int) -> str:
        return f"⟦{one if n == 1 else many}⟧"


@pytest.fixture(autouse=True)
def marked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(i18n._catalogues, "zh-CN", Marked())
    yield


def bare(text: str) -> list[str]:
    """Words outside of all marks."""
    while re.search(r"⟦[^⟦⟧]*⟧", text):
        text = re.sub(r"⟦[^⟦⟧]*⟧", " ", text)
    text = re.sub(r"[0-9a-f-]{16,}|lse_\w+|SIM-\w+|\bs\b", " ", text)
    return sorted({word for word in re.findall(r"[A-Za-z]{2,}(?:-[A-Za-z]+)*", text) if not re.fullmatch(SAME, word)})


async def test_no_page_has_words_of_its_own(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        async with open_service(desk, image_titles={"env": "env"}, isolation_words=lambda mode: "") as service:
            service.hub.add_user("alice")
            service.hub.add_user("boss", admin=True)
            desk.session(3612.4, share=250, profile="gpu-1-4")
            idle = desk.run("bob", profile="test")
            desk.rows.put_verdict(idle.id, desk.now, "warn", "idle", "no code ran", {}, desk.now + timedelta(minutes=5))
            ended = desk.run(profile="cpu", share=0, count=0, server="two")
            desk.clock.advance(60)
            desk.book.request_stop(ended.id, StopReason.IDLE, detail="no code ran")
            desk.wind_up(desk.book.acknowledge(ended.id, "boot-1"))
            browser = service.browser("boss")
            browser.headers["Accept-Language"] = "zh"
            paths = (
                "",
                "?account=alice",
                "board",
                "admin",
                "starts",
                "notices",
                f"lease/{ended.id}",
                f"lease/{idle.id}",
                "nothing-here",
            )
            found = {path: bare(words(await browser.get(path))) for path in (*paths, f"lease/{idle.id}/stop")}
            assert {path: told for path, told in found.items() if told} == {}
