"""What a farewell wrote down, offered at the next start and brought back by one click: kernels of the same documents in
the same folders, their variables, and the documents that were open. What does not come back is told, never raised.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from jupyter_client.session import utcnow

from berth_lab.broadcast import Broadcast
from berth_lab.farewell_files import owner, snapshots_folder
from berth_lab.farewell_kernels import CannotSay, evaluate, load, lost
from berth_lab.notebooks import done
from berth_lab.resume_files import Foreign, Snapshot, all_of, mark_used, own, prune

log = logging.getLogger("berth_lab")

READY_SECONDS = 60.0
LOAD_SECONDS = 600.0
MIB = 1024 * 1024


class Offers:
    """The snapshot that waits, if one does. What the person's other servers in the same home saved never waits here."""

    def __init__(self, serverapp: Any, browsers: Broadcast) -> None:
        self._app, self._browsers = serverapp, browsers
        self._waiting: Snapshot | None = None

    def look(self) -> None:
        """Offer the newest snapshot, unless it is used; one that is refused is told to the person. Raises nothing."""
        found, refused = all_of(snapshots_folder(), os.getuid(), owner())
        for token, why in refused.items():
            log.warning("the snapshot %s is not used: %s", token, why)
        newest = found[0] if found else None
        if refused and (newest is None or max(refused) > newest.token):
            self._browsers.publish("notice", _refusal(max(refused), refused[max(refused)]), lasts=True)
        if newest is not None and newest.used_at is None:
            self._waiting = newest
            self._browsers.publish("resume", newest.offer())

    def prune(self, most_mib: int) -> None:
        """Remove old snapshots: as many bytes may stay as one may have, twice. For a thread."""
        prune(snapshots_folder(), os.getuid(), utcnow(), 2 * most_mib * MIB)

    async def resume(self, token: str) -> dict[str, Any]:
        """Bring it back; see `restore`. Raises `LookupError` for a token that is not the offer's."""
        snapshot = self._taken(token)
        found = await restore(snapshot, self._app, self._tell)
        self._browsers.forget("saving")
        _used(snapshot)
        return found

    def dismiss(self, token: str) -> None:
        """It is not offered again. Raises `LookupError` as `resume` does."""
        _used(self._taken(token))

    def _tell(self, count: int, of: int) -> None:
        self._browsers.publish("saving", {"state": "restoring", "step": "restore", "done": count, "of": of})

    def _taken(self, token: str) -> Snapshot:
        if self._waiting is None or self._waiting.token != token:
            raise LookupError("no such snapshot waits to be restored")
        snapshot, self._waiting = self._waiting, None
        self._browsers.forget("resume")
        return snapshot


def _used(snapshot: Snapshot) -> None:
    try:
        mark_used(snapshot, utcnow())
    except OSError:
        log.warning("the snapshot %s will be offered again", snapshot.token, exc_info=True)


def _refusal(token: str, why: str) -> dict[str, Any]:
    words = f"What was saved when the server stopped is not used: {why} It lies in {snapshots_folder() / token}."
    row = {"id": f"snapshot:{token}", "kind": "snapshot-refused", "words": words, "when": None}
    return row | {"expires_at": None, "link": None, "actions": []}


async def restore(snapshot: Snapshot, serverapp: Any, tell: Callable[[int, int], None]) -> dict[str, Any]:
    """Start the kernels and load their variables: `kernels`, each with `path`, `id` (None if it did not start), how
    many `variables` came back and how many are `lost`; all that is `lost`, as rows; `tabs` to be opened.
    `tell(done, of)` after each kernel."""
    entries = snapshot.manifest["kernels"]
    restored = [_Restored(snapshot, entry, serverapp) for entry in entries]
    for place, each in enumerate(restored, 1):
        await each.run()
        tell(place, len(entries))
    return {
        "token": snapshot.token,
        "kernels": [each.value() for each in restored],
        "variables": sum(each.variables for each in restored),
        "lost": [row for each in restored for row in each.lost],
        "tabs": snapshot.tabs,
    }


class _Restored:
    """One kernel on its way back."""

    def __init__(self, snapshot: Snapshot, entry: dict[str, Any], serverapp: Any) -> None:
        self._snapshot, self._entry, self._app = snapshot, entry, serverapp
        self.id: str | None = None
        self.variables = 0
        self.lost: list[dict[str, Any]] = []

    def value(self) -> dict[str, Any]:
        return {"path": self._entry["path"], "id": self.id, "variables": self.variables, "lost": len(self.lost)}

    async def run(self) -> None:
        entry = self._entry
        self.id = await self._step(self._started())
        if self.id is None or entry["language"] != "python":
            return
        manager = self._app.kernel_manager.get_kernel(self.id)
        if entry["cwd"]:
            await self._step(evaluate(manager, f"__import__('os').chdir({entry['cwd']!r})", READY_SECONDS))
        report = await self._step(self._loaded(manager)) if entry["folder"] is not None else None
        if report is not None:
            self.variables = len(report["saved"])
            for row in report["lost"]:
                words = {"what": row["name"], "where": entry["path"], "why": row["why"], "code": row["code"]}
                self.lost.append({"kind": "variable", **words})

    async def _step(self, work: Awaitable[Any]) -> Any:
        """What came of it; None, and a row, where it failed."""
        name, path = self._entry["name"] or self._entry["path"] or self._entry["kernel"], self._entry["path"]
        try:
            return await work
        except CannotSay as error:
            self.lost.append(lost("kernel", name, path, error.code))
        except Foreign as error:
            self.lost.append(lost("kernel", name, path, "foreign"))
            log.warning("variables of %s are not used: %s", path, error)
        except Exception:
            log.warning("%s could not be brought back", path, exc_info=True)
            self.lost.append(lost("kernel", name, path, "not-started" if self.id is None else "failed"))
        return None

    async def _started(self) -> str:
        """The kernel of this path, started if there is none; its id."""
        entry, sessions = self._entry, self._app.session_manager
        if entry["type"] == "kernel":
            return str(await done(self._app.kernel_manager.start_kernel(kernel_name=entry["kernel"])))
        if await done(sessions.session_exists(path=entry["path"])):
            row = await done(sessions.get_session(path=entry["path"]))
            return str(row["kernel"]["id"])
        if entry["type"] == "notebook" and not await done(self._app.contents_manager.file_exists(entry["path"])):
            raise CannotSay("missing")
        row = await done(
            sessions.create_session(
                path=entry["path"], kernel_name=entry["kernel"], type=entry["type"], name=entry["name"]
            )
        )
        return str(row["kernel"]["id"])

    async def _loaded(self, manager: Any) -> dict[str, Any]:
        folder: Path = self._snapshot.folder / self._entry["folder"]
        _own_files(folder)
        return await load(manager, folder, LOAD_SECONDS)


def _own_files(folder: Path) -> None:
    """Raises `Foreign` unless the folder and its files are the user's alone."""
    own(folder, os.getuid())
    for path in folder.iterdir():
        own(path, os.getuid())
