"""The server extension: watches kernels, pushes what it sees. Outside Berth it does nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from berth_lab import handlers, hush

if TYPE_CHECKING:
    from berth_lab.farewell import Farewell

NEEDED = ("BERTH_LEASE", "BERTH_SERVICE_URL", "JUPYTERHUB_API_TOKEN")
SETTING = "berth_lab"
#: Kinds of notices that tell of what is still to come.
WARNINGS = frozenset({"idle-warning", "shutdown-warning", "max-age-warning", "credit-low", "credit-stop"})
#: Rows of what was not saved, where somebody reads them in one line.
SHOWN_ROWS = 20


def _load_jupyter_server_extension(serverapp: Any) -> None:
    if not all(os.environ.get(name) for name in NEEDED):
        return
    hush.install()
    try:
        kit = Kit(serverapp, os.environ["BERTH_SERVICE_URL"], os.environ["JUPYTERHUB_API_TOKEN"])
        serverapp.io_loop.add_callback(kit.start)
        serverapp.web_app.settings[SETTING] = kit
        handlers.add_handlers(serverapp.web_app, kit)
    except Exception as error:  # a notebook without signals is kept, never reclaimed; one that does not start is lost
        serverapp.log.warning("berth_lab does not run: %s: %s", type(error).__name__, error)


class Kit:
    """Holds the watch and the push together for the life of the server."""

    def __init__(self, serverapp: Any, service: str, token: str) -> None:
        from berth_lab.activity import Saves
        from berth_lab.broadcast import Broadcast
        from berth_lab.leaving import Leaving
        from berth_lab.push import Push
        from berth_lab.stream import Stream
        from berth_lab.watch import Watch

        self._app = serverapp
        self.browsers = Broadcast()
        self._docs_saved = asyncio.Event()
        self._service, self._token = service, token
        self._push = Push(service, token, self.report)
        self._stream = Stream(service, token, self._heard)
        self._saves = Saves()
        self._keeps_outputs = False
        self._saved_now: Path | None = None  # what was saved last without a stop
        self._saving_now: asyncio.Task[dict[str, Any]] | None = None
        self._outputs = self._follow_outputs()
        self._offers: Any = None  # `berth_lab.resume.Offers`, once there are snapshots
        self._leaving = Leaving(self.browsers, self._farewell, self._used)
        self._outputs.asked = self._leaving.asked
        self._watch = Watch(serverapp.kernel_manager, self._push.changed)
        self._tasks: list[asyncio.Task[None]] = []

    def report(self) -> dict[str, Any]:
        """The body of a push (the contract of service `berth`): kernels as `KernelState.report` has them, terminals and
        how many of them run something, processes that are neither, a person's last save, cells that only we have."""
        from berth_lab import activity
        from berth_lab.watch import stamp

        shells = activity.shells_of(self._app.web_app.settings.get("terminal_manager"))
        kernels = self._app.kernel_manager
        pids = [activity.kernel_pid(kernels, i) for i in kernels.list_kernel_ids()]
        children = activity.busy_terminals(shells)
        return {
            "kernels": self._watch.report(),
            "terminals": len(shells),
            "children": children,
            "background": activity.left_behind(os.getpid(), [*shells, *pids]),
            "saved_at": stamp(self._saves.last),
            "unsaved": self._outputs.unsaved() if self._keeps_outputs else None,
        }

    def _follow_outputs(self) -> Any:
        """The keeper of outputs, hooked into the server; it keeps none where the server is not one that we know."""
        from berth_lab.notebooks import Notebooks
        from berth_lab.outputs_watch import DoesNotFit, Outputs, before_reads, followed

        app = self._app
        notebooks = Notebooks(app.contents_manager)
        outputs = Outputs(app.kernel_manager, app.session_manager, notebooks)
        self._notebooks = notebooks
        try:
            app.contents_manager.register_pre_save_hook(self._on_save)
            if "jupyter_server_ydoc" in app.extension_manager.extensions:
                raise DoesNotFit("jupyter_server_ydoc keeps notebooks in the server itself")
            settings = app.web_app.settings
            hooked = followed(settings["kernel_websocket_connection_class"], outputs)
            before_reads(app.contents_manager, outputs)
            settings["kernel_websocket_connection_class"] = hooked
            self._keeps_outputs = True
        except Exception as error:
            app.log.warning("berth_lab keeps no outputs of closed browsers: %s", error)
        return outputs

    def _on_save(self, model: dict[str, Any], path: str, **_: Any) -> None:
        """Before the server saves a file for somebody. What we write ourselves is nobody's work."""
        from jupyter_client.session import utcnow

        path = path.strip("/")
        if path in self._notebooks.writing:
            return
        self._saves.saved(path, model, utcnow())
        if model.get("type") == "notebook":
            self._outputs.saved_by_browser(path)

    def _heard(self, name: str, data: dict[str, Any]) -> None:
        """An event of service `berth`. A warning of what is still to come is for a page that is opened later, too."""
        self.browsers.publish(name, data, lasts=name == "notice" and data.get("kind") in WARNINGS)
        if name == "stopping":
            until = data.get("save_until")  # none where nothing is waited for
            self._leaving.stopping(str(data["reason"]), datetime.fromisoformat(until) if until else _now())
        elif name == "state" and data.get("target") == "RUN":
            self._leaving.runs_on()

    def _farewell(self, reason: str, until: datetime, tells: bool = True) -> Farewell:
        """The saving before a stop; `tells` the service of it."""
        from berth_lab.farewell import Farewell
        from berth_lab.farewell_files import snapshots_folder
        from berth_lab.farewell_world import Around, poster

        post = poster(self._service, self._token) if tells else None
        around = Around(self._app, self._outputs, self.browsers, self._busy, self.ask_browsers_to_save, post)
        lease = os.environ.get("BERTH_LEASE", "")
        farewell = Farewell(around, lease, reason, until, snapshots_folder(), Path.home())
        around.kept_at = farewell.folder / "report.json"
        return farewell

    async def _used(self) -> bool:
        from berth_lab.farewell_world import used

        return await used(self._service, self._token)

    def _busy(self) -> dict[str, bool | None]:
        return {kernel["id"]: kernel["busy"] for kernel in self._watch.report()}

    # What the browser's endpoints are built on. All of it runs on the server's event loop.

    def last_state(self) -> dict[str, Any] | None:
        """The newest `state` of service `berth`; None until it was heard."""
        return self.browsers.last("state")

    def subscribe(self) -> asyncio.Queue[dict[str, Any] | None]:
        """Events as `{"event": NAME, "data": {...}}`, beginning with what is the case; None ends them."""
        return self.browsers.subscribe()

    def unsubscribe(self, queue: asyncio.Queue[dict[str, Any] | None]) -> None:
        """The browser is gone."""
        self.browsers.unsubscribe(queue)

    def resume_offer(self) -> dict[str, Any] | None:
        """The snapshot that waits to be restored, as event `resume` has it."""
        return self.browsers.last("resume")

    async def resume(self, token: str) -> dict[str, Any]:
        """Bring back what the snapshot holds; what came back and what did not, per kernel (`berth_lab.resume.restore`).
        Raises `LookupError` for a token that is not the offer's."""
        if self._offers is None:
            raise LookupError(token)
        self.sync()
        found: dict[str, Any] = await self._offers.resume(token)
        return found

    async def dismiss(self, token: str) -> None:
        """The person does not want it: it is not offered again. Raises `LookupError` as `resume` does."""
        if self._offers is None:
            raise LookupError(token)
        self._offers.dismiss(token)

    async def _look_for_snapshots(self) -> None:
        """Offer what was saved; there is nothing to import for where nothing was."""
        from berth_lab.farewell_files import snapshots_folder

        if not snapshots_folder().is_dir():
            return
        from berth_lab.farewell_world import limits
        from berth_lab.resume import Offers

        try:
            self._offers = Offers(self._app, self.browsers)
            self._offers.look()
            await asyncio.to_thread(self._offers.prune, limits()["most_mib"])
        except Exception:
            self._app.log.warning("berth_lab could not look for snapshots", exc_info=True)

    async def save_now(self) -> dict[str, Any]:
        """Save what can be saved without stopping anything: documents, outputs that only we have, variables of kernels
        that are idle, for the next start; the report. Who asks meanwhile gets the same one."""
        if self._saving_now is None or self._saving_now.done():
            self.sync()
            self._saving_now = asyncio.create_task(self._save_now())
        return await asyncio.shield(self._saving_now)

    async def _save_now(self) -> dict[str, Any]:
        from berth_lab.farewell import WRITE_SECONDS
        from berth_lab.farewell_report import first, listed
        from berth_lab.farewell_world import limits

        seconds = limits()["seconds"] + WRITE_SECONDS
        saying = self._farewell("asked", _now() + timedelta(seconds=seconds), tells=False)
        report = await saying.keep()
        whole = report["resume"] is not None and all(row["kind"] != "kernel" for row in report["lost"])
        if whole and self._saved_now is not None:  # the newer one has all that the older one had
            await asyncio.to_thread(shutil.rmtree, self._saved_now, ignore_errors=True)
        self._saved_now = saying.folder if whole else None
        shown = {"saved": first(report["saved"]), "lost": listed(report["lost"], SHOWN_ROWS)}
        return {**report, **shown, "at": _now().isoformat()}

    def running_cells(self) -> list[dict[str, Any]]:
        """Cells that run now: kernel, cell id, and the outputs so far (nbformat), for a browser that opened the
        notebook meanwhile."""
        cells = self._outputs.running()
        return [
            {"kernel": kernel, "cell": cell.id, "count": cell.count, "outputs": cell.outputs()}
            for kernel, cell in cells
        ]

    def docs_saved(self) -> None:
        """A browser has saved its documents."""
        self._docs_saved.set()

    async def ask_browsers_to_save(self, seconds: float) -> bool:
        """Whether a browser said in time that its documents are saved; False at once where none is open."""
        if not len(self.browsers):
            return False
        self._docs_saved.clear()
        self.browsers.publish("save-please", {})
        try:
            await asyncio.wait_for(self._docs_saved.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def start(self) -> None:
        from berth_lab.watch import KERNEL_EVENTS

        try:
            self._app.event_logger.add_listener(schema_id=KERNEL_EVENTS, listener=self._on_kernel_event)
        except Exception as error:  # the round of every few seconds finds kernels as well, only later
            self._app.log.debug("berth_lab hears no kernel events: %s", error)
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._push.run())]
        self._tasks.append(asyncio.create_task(self._stream.run()))
        self._tasks.append(asyncio.create_task(self._look_for_snapshots()))
        if self._keeps_outputs:
            self._tasks.append(asyncio.create_task(self._outputs.run()))

    async def _on_kernel_event(self, logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        self.sync()
        asyncio.get_running_loop().call_later(0.2, self.sync)  # the list is changed after the event

    async def _follow(self) -> None:
        from berth_lab.watch import SYNC_SECONDS

        while True:
            self.sync()
            await asyncio.sleep(SYNC_SECONDS)

    def sync(self) -> None:
        try:
            self._watch.sync()
        except Exception as error:
            self._app.log.debug("berth_lab could not look at the kernels: %s", error)


def _now() -> datetime:
    from jupyter_client.session import utcnow

    return utcnow()
