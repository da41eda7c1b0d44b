"""Backups that somebody changed who knows how they are made, and what becomes of them."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hub_config.cli import main


def refused(file: Path, new: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The words of a refusal that changed nothing."""
    capsys.readouterr()
    assert main(["restore", str(file), "--data", str(new)]) == 1
    assert [path.name for path in new.iterdir()] == ["up.lock"], "a refusal leaves nothing behind"
    return capsys.readouterr().err


def rewritten(file: Path, change: Callable[[dict[str, Any], list[tuple[tarfile.TarInfo, bytes]]], None]) -> None:
    """The same backup with its manifest and members changed by somebody who knows how."""
    with tarfile.open(file) as archive:
        members = [(entry, archive.extractfile(entry).read()) for entry in archive]  # type: ignore[union-attr]
    manifest = json.loads(members[0][1])
    rest = members[1:]
    change(manifest, rest)
    text = json.dumps(manifest).encode()
    head = tarfile.TarInfo("manifest.json")
    head.size = len(text)
    with gzip.open(file, "wb") as raw, tarfile.open(fileobj=raw, mode="w|") as archive:
        for entry, data in [(head, text), *rest]:
            archive.addfile(entry, io.BytesIO(data))


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made, b""


EMPTY = {"size": 0, "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}
