"""The documents and the README link to nothing that is not there, and show no command or setting that is refused."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from hub_config.cli import parser
from hub_config.reference import pages
from hub_config.settings import parse

ROOT = Path(__file__).resolve().parents[2]
#: Written anew by each build, so what lies there may be old: what is linked there is compared with what would be made.
GENERATED = ROOT / "docs/reference"
MADE = {GENERATED / f"{name}.md" for name in pages()}
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {*GENERATED.glob("*.md")})
LINK = re.compile(r"\]\(([^)\s]+)\)")
SHELL = re.compile(r"^```(?:sh|bash|shell|console)\n(.*?)^```", re.M | re.S)
TOCTREE = re.compile(r"^```{toctree}\n(.*?)^```", re.M | re.S)
TOML = re.compile(r"^```toml\n(.*?)^```", re.M | re.S)


def links(text: str) -> Iterator[str]:
    """The relative targets of a page's links, without their anchors."""
    for target in LINK.findall(text):
        path = target.partition("#")[0]
        if path and not re.match(r"[a-z]+:", path):
            yield path


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of every line of a page's shell blocks that calls berth."""
    for block in SHELL.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] in ("berth", "./berth"):
                yield words[1:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    wanted = {path: (page.parent / path).resolve() for path in links(page.read_text(encoding="utf-8"))}
    missing = [
        path for path, file in wanted.items() if file not in MADE and not (file.exists() and file.parent != GENERATED)
    ]
    assert missing == []


def test_every_page_is_in_the_contents() -> None:
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    listed = {line.strip() for block in TOCTREE.findall(index) for line in block.splitlines()}
    names = [str(page.relative_to(ROOT / "docs").with_suffix("")) for page in PAGES if ROOT / "docs" in page.parents]
    names += [f"reference/{file.stem}" for file in MADE]
    assert [name for name in names if name != "index" and not {name, f"{name.rpartition('/')[0]}/*"} & listed] == []


def test_a_link_to_nothing_is_seen() -> None:
    assert list(links("[a](gone.md#x) [b](https://a.example/) [c](#here)")) == ["gone.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_shown_are_accepted(page: Path) -> None:
    for words in commands(page.read_text(encoding="utf-8")):
        try:
            parser().parse_args(words)
        except SystemExit as stop:
            assert stop.code == 0, f"berth {shlex.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_shown_are_accepted(page: Path) -> None:
    for block in TOML.findall(page.read_text(encoding="utf-8")):
        parse(block, str(page))


def test_a_command_and_its_continued_line_are_seen() -> None:
    text = "```sh\n./berth up \\\n  --port 1  # why\nls\nberth status\n```\n"
    assert list(commands(text)) == [["up", "--port", "1"], ["status"]]
