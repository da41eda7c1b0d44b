"""Styles and scripts are sent compressed; pages, which have secrets in them, and parts of files never are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from quota.web.render import STATIC
from tests.fakes.book import open_desk
from tests.fakes.service import Service, open_service

STYLE = "static/berth.css"


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with open_desk(tmp_path) as desk:
        async with open_service(desk) as found:
            found.hub.add_user("alice")
            yield found


async def test_a_style_is_compressed_and_kept_by_its_hash(service: Service) -> None:
    answer = await service.browser().get(STYLE + "?v=1")
    assert (answer.headers["Content-Encoding"], answer.headers["Vary"]) == ("gzip", "Accept-Encoding")
    assert answer.content == (STATIC / "berth.css").read_bytes()
    assert answer.num_bytes_downloaded < len(answer.content) / 2
    assert "max-age=315360000" in answer.headers["Cache-Control"]


async def test_who_cannot_unpack_it_gets_it_as_it_is(service: Service) -> None:
    answer = await service.browser().get(STYLE, headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in answer.headers
    assert answer.content == (STATIC / "berth.css").read_bytes()


async def test_a_part_of_a_file_is_a_part_of_that_file(service: Service) -> None:
    answer = await service.browser().get(STYLE, headers={"Range": "bytes=10-2009"})
    assert (answer.status_code, "Content-Encoding" in answer.headers) == (206, False)
    assert answer.content == (STATIC / "berth.css").read_bytes()[10:2010]


@pytest.mark.parametrize("path", ["", "board", "api", "no-such-page"])
async def test_what_is_somebodys_own_is_never_compressed(service: Service, path: str) -> None:
    answer = await service.browser("alice").get(path)
    assert len(answer.content) > 300
    assert "Content-Encoding" not in answer.headers
