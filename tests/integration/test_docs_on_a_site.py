"""What tutorials and how-tos show is done on a real site, line by line, and gives what they say that it gives."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.architecture.source import ROOT
from tests.harness import Stack
from tests.harness.stack import clean_environment

pytestmark = [
    pytest.mark.hub,
    pytest.mark.skipif(not (shutil.which("bash") and shutil.which("curl")), reason="needs bash and curl"),
]

PAGES = (
    "tutorial/first-site",
    "tutorial/first-day-as-admin",
    "how-to/credit",
    "how-to/backup",
    "how-to/upgrade",
    "how-to/monitoring",
    "how-to/rest-by-example",
    "how-to/audit",
)
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.M | re.S)
#: Not here: what gets or starts Berth itself, what is about the site that runs, and what sets up the examples.
ELSEWHERE = ("git ", "./berth up", "./berth restore FILE", "export ", "--force")
#: What differs from site to site, and from day to day.
DIFFERS = re.compile(r"[^\s`]*/[\w./-]*|l[0-9a-f]{16}|\d+(?:[.,:T-]\d+)*Z?")


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Every shell block that can be done here, with the block of output that follows it ("" where none does)."""
    waiting = ""
    for indent, language, block in FENCE.findall(text):
        block = re.sub(f"^{indent}", "", block, flags=re.M)
        if language in ("text", "json") and waiting:
            yield waiting, block
            waiting = ""
        elif language == "sh":
            if waiting:
                yield waiting, ""
            lines = [line for line in block.splitlines() if not any(word in line for word in ELSEWHERE)]
            waiting = "\n".join(lines)
    if waiting:
        yield waiting, ""


def shape(text: str) -> list[str]:
    """The lines of an output without what differs."""
    lines = [DIFFERS.sub("…", line).strip() for line in text.splitlines() if line.strip()]
    return [re.sub(r"(… [a-z]+)s\b", r"\1", line) for line in lines]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """With the people and the menu of the examples."""
    toml = re.findall(
        r"^```toml\n(.*?)^```", (ROOT / "docs/how-to/profiles.md").read_text(encoding="utf-8"), re.M | re.S
    )
    with Stack(tmp_path_factory.mktemp("docs") / "data", toml[0]) as site:
        for name in ("ada", "bo"):
            site.add(name)
            site.person(name).account()
        checkout = site.data.parent / "checkout"
        checkout.mkdir()
        (checkout / "berth-data").symlink_to(site.data)
        (checkout / "berth").write_text(f'#!/bin/sh\nexec {sys.executable} -m hub_config "$@"\n')
        (checkout / "berth").chmod(0o700)
        (checkout / "class.txt").write_text("ada\nbo\n")
        (site.data.parent / "safe").mkdir()
        yield site


def done(site: Stack, block: str) -> str:
    """Do a block as its reader would; its standard output. Fails with it."""
    ada, lease = site.person("ada"), next(iter(site.person("ada").leases()), {"id": "none"})
    name = re.search(r"/(accounts|prices)", block) and site.admin
    env = clean_environment() | {
        "HUB": site.url,
        "BERTH": f"{site.url}/services/berth/api/v1",
        "TOKEN": (name or ada).token,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).strip(os.pathsep),
    }
    block = block.replace("/safe/", f"{site.data.parent}/safe/").replace("l4e234908bec434d5", str(lease["id"]))
    block = re.sub(r"\bcurl\b", "curl -sS --fail-with-body", block)
    checkout = site.data.parent / "checkout"
    ran = subprocess.run(
        ["bash", "-eu", "-c", block], cwd=checkout, env=env, capture_output=True, text=True, timeout=90
    )
    assert ran.returncode == 0, f"{block}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_is_what_happens(page: str, site: Stack) -> None:
    shutil.rmtree(site.data.parent / "try", ignore_errors=True)
    for old in (site.data.parent / "safe").iterdir():
        old.unlink()
    found = list(blocks((ROOT / f"docs/{page}.md").read_text(encoding="utf-8")))
    assert found
    for block, told in found:
        output = done(site, block)
        if told.lstrip().startswith("{") and output.lstrip().startswith("{"):
            assert json.JSONDecoder().raw_decode(output)[0].keys() == json.loads(told).keys(), block
        elif told and "curl" not in block:
            assert [line for line in shape(told) if line not in shape(output)] == [], f"{block}\n{output}"


def test_an_output_that_is_not_so_is_seen() -> None:
    text = "```sh\n./berth audit\ngit pull\n```\n\n```text\nThe book is in order: 5 postings.\n```\n"
    assert list(blocks(text)) == [("./berth audit", "The book is in order: 5 postings.\n")]
    assert shape("The book is in order: 71 postings.") == shape("The book is in order: 1 posting.")
    assert shape("The book is upside down.") != shape("The book is in order.")
