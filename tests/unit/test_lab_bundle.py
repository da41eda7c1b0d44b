"""JupyterLab's part of the kit: the committed bundle is the source's, and every sentence has its Chinese."""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from berth_lab import farewell_kernels, farewell_report, serialize_refusals
from quota import catalogues, i18n
from quota.told import retold
from tests.unit import test_kit_words

ROOT = Path(__file__).resolve().parents[2]
UI = ROOT / "images/lab/ui"
BUNDLE = ROOT / "images/lab/berth_lab/labextension"
LOCK = json.loads((UI / "package-lock.json").read_text(encoding="utf-8"))

#: What npm says where there is no network. In CI that is a failure.
UNREACHABLE = re.compile(r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH)\b")

node_is_there = pytest.mark.skipif(
    shutil.which("node") is None or shutil.which("npm") is None,
    reason="no node and npm on this machine: the bundle cannot be built anew (any other machine's run does)",
)


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@node_is_there
def test_bundle_is_what_its_source_gives_wherever_node_is_installed(tmp_path: Path) -> None:
    source = tmp_path / "somewhere/else/ui"
    shutil.copytree(UI, source, ignore=shutil.ignore_patterns("node_modules", "lib"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in (["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], ["npm", "run", "build"]):
        done = subprocess.run(
            command, cwd=source, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=300
        )
        if command[1] == "ci" and done.returncode and UNREACHABLE.search(done.stderr) and "CI" not in os.environ:
            pytest.skip("npm's registry cannot be reached from here: the bundle cannot be built anew")
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    built = source.parent / "berth_lab/labextension"
    assert files_of(built) == files_of(BUNDLE), "images/lab/ui/README.md says how the bundle is built"
    same, other, failed = filecmp.cmpfiles(built, BUNDLE, files_of(BUNDLE), shallow=False)
    assert (sorted(other), failed) == ([], []), "images/lab/ui/README.md says how the bundle is built"
    assert same


def test_bundle_has_nobody_elses_code() -> None:
    (licenses,) = BUNDLE.rglob("third-party-licenses.json")
    assert json.loads(licenses.read_text(encoding="utf-8")) == {"packages": []}


def test_lock_names_no_registry_and_has_every_hash() -> None:
    packages = {name: each for name, each in LOCK["packages"].items() if name}
    assert packages and not [name for name, each in packages.items() if "resolved" in each]
    assert not [name for name, each in packages.items() if not str(each.get("integrity", "")).startswith("sha512-")]


def catalogue() -> dict[str, str]:
    """Sentences of zh.ts: `'English': 'Chinese'`, or `Word: 'Chinese'`."""
    text = (UI / "src/zh.ts").read_text(encoding="utf-8")
    found = re.findall(r"^  (?:'((?:[^'])+)'|(\w+)):\s+'([^']+)'", text, re.MULTILINE)
    return {quoted or plain: chinese for quoted, plain, chinese in found}


def literals() -> set[str]:
    """All strings of the source that are in quotes."""
    sources = [path for path in (UI / "src").glob("*.ts") if path.name != "zh.ts"]
    texts = [re.sub(r"^\s*(//|/?\*).*$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE) for path in sources]
    return {one for text in texts for one in re.findall(r"'([^'\n]*)'", text)}


def test_every_sentence_has_its_chinese_with_the_same_values() -> None:
    sentences = catalogue()
    said = {key for path in (UI / "src").glob("*.ts") for key in asked(path.read_text(encoding="utf-8"))}
    assert said and said <= set(sentences)  # the compiler asks for the same; this needs no compiler
    assert set(sentences) <= literals(), "translated, but not said any more"
    same = {"{share} GPU", "{used} GiB", "{used} of {total} GiB"}
    for english, chinese in sentences.items():
        assert sorted(re.findall(r"{\w+}", english)) == sorted(re.findall(r"{\w+}", chinese)), english
        assert english in same or re.search("[\u4e00-\u9fff]", chinese), english


def test_why_something_does_not_come_back_is_said_in_chinese_as_on_the_receipt() -> None:
    """The kit says why in English alone: the receipt has the service's Chinese, the dialog that of reasons.ts."""
    text = (UI / "src/reasons.ts").read_text(encoding="utf-8")
    found = re.findall(r"""^  (?:'([^'\n]+)'|"([^"\n]+)"):\s+'([^'\n]+)'""", text, re.MULTILINE)
    reasons = {one or other: chinese for one, other, chinese in found}
    assert set(reasons) == {*farewell_kernels.WHY.values(), *serialize_refusals.WHY.values()}
    assert not [chinese for chinese in reasons.values() if not re.fullmatch(r"[^a-z]*[\u4e00-\u9fff].*。", chinese)]
    assert farewell_report.MORE % {"number": 17} == "And 17 more that are not listed."  # the pattern in reasons.ts
    catalogues.load("en")
    with i18n.speaking("zh-CN"):
        told = {words: retold(words) for words in test_kit_words.SENTENCES}
    assert {words: chinese for words, chinese in reasons.items() if words in told} == {
        words: chinese for words, chinese in told.items() if words in reasons
    }
    assert told[farewell_report.MORE % {"number": 17}].replace("17", "$1") in text


def asked(text: str) -> list[str]:
    return re.findall(r"\b_?say\(\s*'([^']+)'", text)


def test_versions_are_those_of_the_installed_jupyterlab() -> None:
    """The federated modules are JupyterLab's own at run time; a bundle for another minor version may miss some."""
    import jupyterlab

    core = LOCK["packages"]["node_modules/@jupyterlab/core-meta"]["version"]
    assert core.split(".")[:2] == jupyterlab.__version__.split(".")[:2]
