"""A deployment out of a backup: everything is read and checked before anything is replaced, and nothing is thrown away.

What was there goes into a folder `before-restore-…` of the data folder (on PostgreSQL into a schema of that name). A
marker lies in the data folder from the first replacement to the last; `berth up` does not start while it is there.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from hub_config import backup, site_files
from hub_config.backup import Manifest, Say
from hub_config.book_trouble import refuse_while_at_work, stamp
from hub_config.compose import Parts
from hub_config.datafolder import DataFolder, write_private
from hub_config.settings import COMMENTED, Settings
from quota import audit, revisions
from quota.dump import load, set_aside
from quota.errors import BerthError
from quota.store import Store


@dataclass(frozen=True, slots=True)
class Restored:
    """What was done. `aside`: where what was there is now; `findings`: what the audit says of the restored book."""

    manifest: Manifest
    where: str
    schema: str
    aside: str | None
    findings: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "book": self.where,
            "schema": self.schema,
            "backup_schema": self.manifest.schema,
            "backup_made_at": self.manifest.made_at,
            "rows": self.manifest.rows,
            "aside": self.aside,
            "findings": list(self.findings),
        }


def restore(data: DataFolder, file: Path, *, force: bool, keep_settings: bool, say: Say) -> Restored:
    """Put a backup into a data folder that nothing runs on (the caller holds its lock).

    Raises `BerthError` for a backup that is damaged or does not fit, for a folder or database that holds a deployment
    already (unless `force`), for a PostgreSQL book that somebody is at work on; `SettingsError`, `Refused`,
    `FileNotFoundError`. Then nothing was changed.
    """
    with _stage(data.root) as stage:
        say(f"Checking {file} …")
        manifest = backup.unpack(file, stage)
        _check_fits(manifest)
        _check_hub(stage / backup.HUB)
        made = _target(data, stage, keep_settings)
        try:
            return _put(made, stage, manifest, force=force, keep_settings=keep_settings, say=say)
        finally:
            made.store.close()


@contextmanager
def _stage(root: Path) -> Iterator[Path]:
    """A private folder on the same file system, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=".restore-", dir=root) as folder:
        yield Path(folder)


def _check_fits(manifest: Manifest) -> None:
    known = [step.id for step in revisions.known()]
    if manifest.schema not in known:
        raise BerthError(
            f"this backup was made by Berth {manifest.berth} with the schema {manifest.schema}; this Berth "
            f"({version('berth')}) knows up to {known[-1]}. Install that Berth or a later one, and restore with it"
        )
    here = version("jupyterhub")
    if _numbers(manifest.jupyterhub) > _numbers(here) and backup.HUB in manifest.members:
        raise BerthError(
            f"the Hub's database in this backup is of JupyterHub {manifest.jupyterhub}, here is {here}; "
            f"install jupyterhub {manifest.jupyterhub} or a later one"
        )


def _check_hub(database: Path) -> None:
    """The checksums only tell that it is what was saved."""
    if not database.is_file():
        return
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        raise BerthError(f"the Hub's database in this backup is damaged ({found}); use an older backup")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())  # its schema changes with the second


def _target(data: DataFolder, stage: Path, keep_settings: bool) -> Parts:
    """The parts of the deployment as it will be: `berth.toml` and a password file may still lie in the stage."""
    staged = DataFolder(stage)
    settings = (data if keep_settings else staged).settings()
    password = _password(data, staged, settings)
    made = Parts(data, settings)
    made.__dict__["store"] = Store(data.book_url(settings), password)  # instead of the one it would make
    return made


def _password(data: DataFolder, staged: DataFolder, settings: Settings) -> str | None:
    from_stage = settings.book.password_file and (staged.root / settings.book.password_file).is_file()
    return (staged if from_stage else data).book_password(settings)


# ---- putting it into place -------------------------------------------------------------------------------------


def _put(made: Parts, stage: Path, manifest: Manifest, *, force: bool, keep_settings: bool, say: Say) -> Restored:
    moves = _moves(made, stage, keep_settings)
    _refuse_to_replace(made, moves, force)
    aside = f"before-restore-{stamp(made.clock.now())}"
    findings: list[str] = []
    if made.store.file is not None:
        say("Building the book …")
        new = stage / made.store.file.name
        with Store(f"sqlite:///{new}") as store:
            revisions.upgrade(store, manifest.schema)
            with store.write() as connection:
                findings = _fill(connection, stage, manifest)
        moves[new] = made.store.file
    write_private(made.data.unfinished_restore, f"a restore of a backup of {manifest.made_at}\n")
    moved = False
    if made.store.file is None:
        say(f"Writing the book into {made.store.where} …")
        try:
            with made.store.write() as connection:
                revisions.check_encoding(connection)
                moved = bool(set_aside(connection, aside))
                revisions.upgrade_in(connection, manifest.schema)
                findings = _fill(connection, stage, manifest)
        except BaseException:
            made.data.unfinished_restore.unlink()  # nothing was changed
            raise
    say("Putting files into place …")
    kept = _swap(made.data.root, moves, made.data.root / aside, made.store.file, _replaced_folders(made, moves))
    made.data.unfinished_restore.unlink()
    places = [str(kept)] if kept else []
    places += [f"schema {aside} of the database"] if moved else []
    return Restored(manifest, made.store.where, revisions.newest(), " and ".join(places) or None, tuple(findings))


def _fill(connection: Any, stage: Path, manifest: Manifest) -> list[str]:
    """Load the rows into the schema they come from, count them, bring the schema up, and audit the book."""
    with (stage / backup.BOOK).open(encoding="utf-8") as lines:
        counted = load(connection, lines)
    if counted != manifest.rows:
        raise BerthError("the book in this backup has not the rows that its manifest says; it was not restored")
    revisions.upgrade_in(connection)
    return audit.findings(connection)


def _moves(made: Parts, stage: Path, keep_settings: bool) -> dict[Path, Path]:
    """What goes where, the book apart."""
    data = made.data
    moves = {stage / backup.HUB: data.hub_database, stage / backup.HOST: data.root / "host"}
    if not keep_settings:
        moves[stage / backup.SETTINGS] = data.settings_file
    if (stage / backup.EXTRA).is_file() and made.settings.hub.extra_config:
        moves[stage / backup.EXTRA] = backup.inside(data.root, made.settings.hub.extra_config)
    moves |= {path: data.secrets / path.name for path in (stage / "secrets").iterdir()}
    moves |= _site_moves(made, stage / site_files.PREFIX, keep_settings)
    return {source: target for source, target in moves.items() if source.is_file()}


def _site_moves(made: Parts, staged: Path, keep_settings: bool) -> dict[Path, Path]:
    """The files of the site's extensions. Only what the settings name comes back: with settings that are kept, the
    rest is left in the backup; with the backup's own there can be no rest."""
    moves: dict[Path, Path] = {}
    for path in sorted(staged.rglob("*")):
        relative = path.relative_to(staged).as_posix()
        if not path.is_file():
            continue
        if site_files.belongs(relative, made.settings):
            moves[path] = backup.inside(made.data.root, relative)
        elif not keep_settings:
            raise BerthError(f"this backup holds {relative!r}, which its settings do not name; it was not restored")
    return moves


def _replaced_folders(made: Parts, moves: dict[Path, Path]) -> list[Path]:
    """Folders of the site that go aside as a whole: a file of the old one among the new ones would be neither."""
    there = [made.data.root / folder for folder in site_files.folders(made.settings)]
    return [each for each in there if each.is_dir() and any(path.is_relative_to(each) for path in moves.values())]


def _refuse_to_replace(made: Parts, moves: dict[Path, Path], force: bool) -> None:
    refuse_while_at_work(made)
    if force:
        return
    there = sorted({_shown(made.data.root, path) for path in moves.values() if path.exists() and not _is_plain(path)})
    if made.store.file is None and revisions.current(made.store) is not None:
        there.append(f"a book in {made.store.where}")
    if made.store.file is not None and made.store.file.exists():
        there.append(_shown(made.data.root, made.store.file))
    if there:
        raise BerthError(
            f"there is a deployment in {made.data.root} already ({', '.join(there[:4])}{', …' if there[4:] else ''}); "
            "add --force to replace it: what is there is kept aside"
        )


def _shown(root: Path, path: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def _is_plain(path: Path) -> bool:
    """The settings file that every new data folder gets holds nothing that could be lost."""
    return path.name == backup.SETTINGS and path.read_text(encoding="utf-8", errors="replace") == COMMENTED


def _swap(root: Path, moves: dict[Path, Path], aside: Path, book: Path | None, whole: list[Path]) -> Path | None:
    """Move what is there aside (the folders in `whole` with all that is in them) and the new files into place; the
    folder with the old ones, if there were any."""
    single = [path for path in moves.values() if not any(path.is_relative_to(folder) for folder in whole)]
    old = [path for path in (*whole, *single) if path.exists()]
    for target in (book, root / "hub" / "jupyterhub.sqlite"):
        if target is not None:  # what SQLite has not copied back yet belongs to the old file
            old += [side for end in ("-wal", "-shm", "-journal") if (side := Path(f"{target}{end}")).exists()]
    for path in old:
        kept = aside / (path.relative_to(root) if path.is_relative_to(root) else path.name)
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.move(path, kept)
    for source, target in moves.items():
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.move(source, target)
        backup.to_disk(target.parent)
    return aside if old else None
