"""One file with a deployment: the book, the Hub's database, `berth.toml` and the secrets. And back.

A backup is taken while Berth runs. The Hub's database is copied first, the book last, each as one snapshot: every
lease that the Hub knows is then in the book, and what happened in between is in the book, which alone decides about
room and money. The Hub finds servers that it does not know, or that are over, by asking, as after a crash.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any

from hub_config import site_files
from hub_config.book_trouble import copy_sqlite
from hub_config.compose import Parts
from hub_config.datafolder import DataFolder
from hub_config.settings import Settings
from quota import revisions
from quota.dump import dump
from quota.errors import BerthError

#: 2 has files of the site's extensions; without any a backup is of the first format, which every Berth reads.
FORMAT = 2
MANIFEST, BOOK, HUB, SETTINGS, EXTRA, HOST = (
    "manifest.json",
    "book.jsonl",
    "hub.sqlite",
    "berth.toml",
    "extra_config.py",
    "host",
)
_PLAIN = frozenset({BOOK, HUB, SETTINGS, EXTRA, HOST})
_SECRET = re.compile(r"secrets/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_MOST_MANIFEST = 1_000_000
_CHUNK = 1 << 20
_DAMAGED = "The file is damaged or no backup of Berth: "

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup says about itself. `rows` counts those of each table of the book, `members` are sizes and SHA-256
    of the files in it, `left_out` says in words what is not."""

    berth: str
    schema: str
    jupyterhub: str
    made_at: str
    database: str
    rows: dict[str, int]
    members: dict[str, tuple[int, str]]
    left_out: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        members = {name: {"size": size, "sha256": digest} for name, (size, digest) in self.members.items()}
        values = {name: getattr(self, name) for name in self.__slots__ if name != "members"}
        needed = 2 if any(site_files.is_member(name) for name in self.members) else 1
        return {"format": needed, **values, "left_out": list(self.left_out), "members": members}


# ---- making one ------------------------------------------------------------------------------------------------


def back_up(made: Parts, target: Path, say: Say) -> Manifest:
    """Write the backup, private, whole or not at all. Raises `BerthError`, `FileExistsError`, `Refused`."""
    revision = revisions.current(made.store)
    if revision is None:
        raise BerthError(f"there is no book in {made.store.where} yet, so there is nothing to back up")
    revisions.steps_from(revision)  # a newer one is not ours to read
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with tempfile.TemporaryDirectory(prefix=".berth-backup-", dir=target.parent) as folder:
            manifest = _gather(made, Path(folder), revision, say)
            packed = Path(folder) / "packed"
            say("Packing …")
            _pack(manifest, Path(folder), packed)
            os.replace(packed, target)
        to_disk(target.parent)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return manifest


def _gather(made: Parts, folder: Path, revision: str, say: Say) -> Manifest:
    """Bring all members together in a folder; the Hub's database before the book."""
    left_out = ["users' homes, logs and the records of running servers"]
    hub = made.data.hub_database
    if hub.exists():
        say("Copying the Hub's database …")
        copy_sqlite(hub, folder / HUB)
    else:
        left_out.append("the Hub's database, which is not there yet")
    _gather_files(made, folder, left_out)
    say("Reading the book …")
    with made.store.read() as connection, _private(folder / BOOK) as out:
        rows = dump(connection, out)
    say(f"{sum(rows.values()):,} rows of {len(rows)} tables")
    members = {name: _measure(folder / name) for name in _names_in(folder)}
    database = "sqlite" if made.store.file is not None else "postgresql"
    return Manifest(
        berth=version("berth"),
        schema=revision,
        jupyterhub=version("jupyterhub"),
        made_at=made.clock.now().isoformat().replace("+00:00", "Z"),
        database=database,
        rows=rows,
        members=members,
        left_out=tuple(left_out),
    )


def _gather_files(made: Parts, folder: Path, left_out: list[str]) -> None:
    data = made.data
    (folder / "secrets").mkdir(mode=0o700)
    wanted = {SETTINGS: data.settings_file, HOST: data.root / "host"}
    if data.secrets.is_dir():
        wanted |= {f"secrets/{path.name}": path for path in data.secrets.iterdir() if not path.name.startswith(".")}
    extra = extra_config_of(data, made.settings)
    if extra is not None:
        wanted[EXTRA] = extra
    elif made.settings.hub.extra_config:
        left_out.append(f"{made.settings.hub.extra_config}, which lies outside the data folder")
    members, not_kept = site_files.found(data.root, made.settings)
    left_out += not_kept
    for name, path in (wanted | members).items():
        if path.is_file() and _may_be_called(name):
            (folder / name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            private_copy(path, folder / name)


def _may_be_called(name: str) -> bool:
    return name in _PLAIN or _SECRET.fullmatch(name) is not None or site_files.is_member(name)


def extra_config_of(data: DataFolder, settings: Settings) -> Path | None:
    """The site's own Python file, where it lies inside the data folder."""
    if not settings.hub.extra_config:
        return None
    path = (data.root / settings.hub.extra_config).resolve()
    return path if path.is_relative_to(data.root.resolve()) and path.suffix == ".py" else None


def _names_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _measure(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        return path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()


def _pack(manifest: Manifest, folder: Path, packed: Path) -> None:
    text = json.dumps(manifest.as_json(), indent=2).encode()
    handle = os.open(packed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as raw:
        with tarfile.open(fileobj=raw, mode="w:gz", compresslevel=6, format=tarfile.PAX_FORMAT) as archive:
            _add(archive, MANIFEST, len(text), io.BytesIO(text))
            for name, (size, _) in manifest.members.items():
                with (folder / name).open("rb") as file:
                    _add(archive, name, size, file)
        raw.flush()
        os.fsync(raw.fileno())


def _add(archive: tarfile.TarFile, name: str, size: int, file: Any) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o600
    archive.addfile(entry, file)


# ---- reading one -----------------------------------------------------------------------------------------------


def unpack(file: Path, folder: Path) -> Manifest:
    """Unpack a backup into an empty private folder, and hold every byte against its manifest.

    Only the names that a backup can have are written, as plain files. Raises `BerthError` for a file that is damaged,
    was made by a newer Berth, or holds anything else; `FileNotFoundError`.
    """
    try:
        with gzip.open(file) as raw, tarfile.open(fileobj=raw, mode="r|") as archive:
            manifest = _unpack(archive, folder)
            while raw.read(_CHUNK):  # to the end, where the checksum of the whole stands
                pass
            return manifest
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise BerthError(f"{_DAMAGED}{file}: {error or type(error).__name__}") from error


def _unpack(archive: tarfile.TarFile, folder: Path) -> Manifest:
    (folder / "secrets").mkdir(mode=0o700, exist_ok=True)
    manifest: Manifest | None = None
    found: set[str] = set()
    for entry in archive:
        stream = archive.extractfile(entry) if entry.isreg() else None
        if stream is None or entry.name in found:
            raise BerthError(f"{_DAMAGED}{entry.name!r} is no plain file, or is in it twice")
        found.add(entry.name)
        if manifest is None:
            manifest = _read_manifest(entry, stream)
            continue
        if entry.name not in manifest.members:
            raise BerthError(f"{_DAMAGED}{entry.name!r} is not in its manifest")
        if entry.size != manifest.members[entry.name][0]:
            raise BerthError(f"{_DAMAGED}{entry.name} has not the size that its manifest says")
        (folder / entry.name).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_checked(stream, folder / entry.name, entry.name, manifest.members[entry.name])
    if manifest is None:
        raise BerthError(f"{_DAMAGED}it is empty")
    missing = sorted(set(manifest.members) - found)
    if missing or BOOK not in found:
        raise BerthError(f"{_DAMAGED}{', '.join(missing) or BOOK} is missing")
    return manifest


def _read_manifest(entry: tarfile.TarInfo, stream: Any) -> Manifest:
    if entry.name != MANIFEST or entry.size > _MOST_MANIFEST:
        raise BerthError(f"{_DAMAGED}it does not begin with its manifest")
    try:
        values = json.loads(stream.read())
        if values["format"] > FORMAT:
            raise BerthError(
                f"this backup was made by Berth {values['berth']}, in a format that this one ({version('berth')}) does "
                "not know; restore it with that Berth or a later one"
            )
        members = {str(name): (int(each["size"]), str(each["sha256"])) for name, each in values["members"].items()}
        manifest = Manifest(
            **{name: str(values[name]) for name in ("berth", "schema", "jupyterhub", "made_at", "database")},
            rows={str(name): int(count) for name, count in values["rows"].items()},
            members=members,
            left_out=tuple(map(str, values["left_out"])),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BerthError(f"{_DAMAGED}its manifest cannot be read: {error}") from error
    for name in members:
        if not _may_be_called(name) or any(str(parent) in members for parent in PurePosixPath(name).parents):
            raise BerthError(f"{_DAMAGED}a backup has no {name!r}")
    return manifest


def _write_checked(stream: Any, path: Path, name: str, wanted: tuple[int, str]) -> None:
    digest, size = hashlib.sha256(), 0
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as out:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    if (size, digest.hexdigest()) != wanted:
        raise BerthError(f"{_DAMAGED}{name} is not as its checksum says")


# ---- small things ----------------------------------------------------------------------------------------------


def private_copy(source: Path, target: Path) -> None:
    """Copy a file, readable by nobody else from the first byte on."""
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as out, source.open("rb") as file:
        shutil.copyfileobj(file, out)


@contextmanager
def _private(path: Path) -> Iterator[io.TextIOWrapper]:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        yield out


def to_disk(folder: Path) -> None:
    """Make a rename last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def inside(root: Path, relative: str) -> Path:
    """A path below `root`. Raises `BerthError` for one that leaves it."""
    pure = PurePosixPath(relative)
    path = (root / pure).resolve()
    if pure.is_absolute() or ".." in pure.parts or not path.is_relative_to(root.resolve()):
        raise BerthError(f"{relative!r} lies outside {root}")
    return path
