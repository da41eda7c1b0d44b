"""The Hub's spawner: a start becomes a lease, a stop becomes an intent in the book, the rest is seen by the agent.

JupyterHub facts that shape it: a REST start never sees `options_from_form`, so `apply_user_options` validates, and
`start` again; a refusal is a `SpawnException`, since anything else counts towards the Hub's own exit; state is saved
only after `start` has returned, so the book is asked by holder where there is none; `stop` is skipped for a server that
died by itself, so nothing is charged or released here.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import time
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from jupyterhub.spawner import Spawner, SpawnException
from jupyterhub.traitlets import Callable
from jupyterhub.utils import maybe_future
from tornado.web import HTTPError
from traitlets import Float, default

from quota.errors import Reason, Refused
from quota.leases import Holder, Lease, LeaseRequest, Quote, ServiceClass, State, StopReason
from quota.told import CANCELLED, FAILED_AFTER
from spawner import form, metrics
from spawner.container import INHERITED, Place, server_spec
from spawner.homes import prepare_home, settings_folder
from spawner.hub_facts import asked_by, name_of
from spawner.messages import words
from spawner.names import check_username
from spawner.options import flat, kept_after
from spawner.payers import explained
from spawner.ports import ServerSpec
from spawner.profiles import Choice, Profile, open_profiles, parse_choice
from spawner.progress import Progress
from spawner.reach import connects, free_port, http_status, reachable
from spawner.refusals import spawn_exception
from spawner.rules import Asker
from spawner.start import GiveUp, Start
from spawner.stopping import Stop, exit_code
from spawner.threads import begin, in_thread
from spawner.wiring import Wiring

__all__ = ["GpuSpawner", "LocalGpuSpawner", "Wiring"]

#: A cancelled start gets this long to undo itself before the Hub goes on; it goes on undoing afterwards. The Hub
#: itself waits one second after it has cancelled.
CANCEL_SECONDS: Final = 0.7
#: `poll` of many servers shares one look of at most this age.
POLL_AGE_SECONDS: Final = 1.0


class GpuSpawner(Spawner):
    """Starts servers on leases. What runs them is behind `Wiring.runtime`; a subclass says what is run and where."""

    user_options: dict[str, Any]
    wire = Callable(
        None,
        allow_none=True,
        config=True,
        help="A function without arguments that returns the `spawner.wiring.Wiring` of this hub process.",
    )
    stop_grace = Float(10.0, min=0.0, config=True, help="Seconds a server is given to end before it is forced.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lease_id = ""
        self._starting: Start | None = None
        self._begun: asyncio.Task[Lease] | None = None
        self._looked_for_after = 0.0  # an older look says nothing about this server
        self._unproven = False  # found by its holder after a crash of the hub, and not heard of since
        self._told = Progress()
        self._last_options = dict(self.user_options or {})  # of a start that was granted, as far as is known

    @property
    def wiring(self) -> Wiring:
        """The parts of this process. Raises `RuntimeError` where the composition root set none."""
        if self.wire is None:
            raise RuntimeError("c.GpuSpawner.wire is not set: Berth's own JupyterHub configuration sets it")
        made: Wiring = self.wire()
        return made

    @property
    def holder(self) -> Holder:
        return Holder(self.user.name, self.name)

    @property
    def groups(self) -> frozenset[str]:
        """The Hub's groups of the user for whom it starts, at this moment and whoever asks. A change by an
        administrator or the identity provider counts at once, without a new log-in."""
        return frozenset(group.name for group in self.user.groups)

    @property
    def asker(self) -> Asker:
        """For whom it starts, as the site's own rules are told."""
        return Asker(self.user.name, self.groups, bool(self.user.admin))

    @property
    def requester(self) -> str:
        """Who asked for the start that is under way."""
        return name_of(getattr(self.handler, "current_user", None)) or self.user.name

    # ---- options -------------------------------------------------------------------------------------------------

    @default("poll_interval")
    def _default_poll_interval(self) -> int:
        return 5

    @default("default_url")
    def _default_default_url(self) -> str:
        return "/lab"

    @default("env_keep")
    def _default_env_keep(self) -> list[str]:
        return list(INHERITED)

    @default("options_from_form")
    def _default_options_from_form(self) -> Any:
        return flat

    def options_from_query(self, query_data: Mapping[str, Any]) -> dict[str, Any]:
        """Options in the address of the start page: the Hub would start a server for whoever follows a link, and a
        link (or an image) of another site would spend somebody's credits. The form is shown instead, with these words.
        """
        words = "A link cannot start a server. Choose below, then press the button."
        error = SpawnException(words, reason="link", status_code=403, log_message=f"{self._log_name}: by a link")
        error.jupyterhub_message = words
        raise error

    @default("apply_user_options")
    def _default_apply_user_options(self) -> Any:
        return _validate

    @default("options_form")
    def _default_options_form(self) -> Any:
        return _options_form

    async def menu(self) -> Sequence[Profile]:
        """The profiles that this user is offered: the site's own rule says, where there is one, before form and start
        ask for groups. Raises `Refused(RULE_FAILED)`."""
        wiring = self.wiring
        if wiring.offer is None:
            return wiring.profiles
        return await in_thread(wiring.offer, wiring.profiles, self.asker)

    async def quotes(self, profiles: Sequence[Profile]) -> Mapping[str, Quote]:
        """What the site's own rule asks of this user for each of these profiles now; empty where it has none. Raises
        `Refused(RULE_FAILED)`."""
        wiring = self.wiring
        if wiring.quotes is None:
            return {}
        return await in_thread(wiring.quotes, profiles, self.asker, wiring.clock.now())

    def choose(self, options: Mapping[str, object], menu: Sequence[Profile]) -> Choice:
        """The options of a start as a valid choice, for form, REST and admin starts alike. Raises `Refused`."""
        check_username(self.user.name)
        try:
            return parse_choice(
                options,
                menu,
                tuple(self.wiring.images),
                user=self.user.name,
                groups=self.groups,
                sites=self.wiring.groups,
                hidden={each.name for each in self.wiring.profiles} - {each.name for each in menu},
            )
        except Refused as refused:
            self.keep_last(refused.reason, options)
            raise

    def keep_last(self, reason: Reason, asked: Mapping[str, object]) -> dict[str, Any]:
        """Give the Hub back what it had on record before these options were refused; the same for the caller."""
        kept = kept_after(reason, asked, self._last_options)
        if self.orm_spawner is not None:
            self.orm_spawner.user_options = kept
        return kept

    async def _run_apply_user_options(self, user_options: Mapping[str, object]) -> None:
        """As the parent, which logs whatever its hook raises as an error with a traceback; a refusal is none."""
        if self.apply_user_options is _validate:
            await _validate(self, user_options)
        else:
            await super()._run_apply_user_options(user_options)

    async def render_form(self) -> str:
        """The form's inside. What cannot be read is said; it never keeps the page from being shown."""
        wiring = self.wiring
        try:
            menu, chosen = await self.menu(), dict(self.user_options or {})
            quotes = await self.quotes(open_profiles(menu, self.groups))
            facts = await in_thread(form.facts_of, wiring, self.user.name, chosen, self.groups, menu, quotes)
        except Refused as refused:
            return form.render_trouble(words(refused))
        except Exception:
            self.log.exception("The start form of %s could not be made", self._log_name)
            return form.render_trouble(words(Refused(Reason.BOOK_UNAVAILABLE)))
        return form.render(form.view(facts))

    # ---- hooks of the site ---------------------------------------------------------------------------------------

    async def run_pre_spawn_hook(self) -> None:
        """The site's hook, before anything is held. One that fails is told to the user as what it is, counted, and is
        no fault that would end the Hub; what it refuses by itself (an `HTTPError`) goes through."""
        try:
            await maybe_future(super().run_pre_spawn_hook())
        except HTTPError:
            raise
        except Exception as error:
            self._hook_failed("pre_spawn_hook")
            text = (
                "A rule of this site (pre_spawn_hook) failed before your server was started. Nothing was started or "
                "charged. Tell an administrator; the hub's log has the details."
            )
            found = SpawnException(
                text, reason="hook-failed", status_code=500, log_message=f"pre_spawn_hook: {error!r}"
            )
            found.jupyterhub_message = text
            raise found from None

    async def run_post_stop_hook(self) -> None:
        try:
            if self.post_stop_hook is not None:
                await maybe_future(self.post_stop_hook(self))
        except Exception:  # the server has ended; that much is sure
            self._hook_failed("post_stop_hook")

    def _hook_failed(self, hook: str) -> None:
        metrics.HOOK_ERRORS.labels(hook).inc()
        self.log.exception("The site's %s failed for %s", hook, self._log_name, extra={"event": "hook-failed"})

    # ---- start ---------------------------------------------------------------------------------------------------

    async def start(self) -> tuple[str, int]:
        """Reserve, start, wait for the answer; the (ip, port) the Hub reaches the server at.

        Raises `SpawnException` with Berth's reason for whatever goes wrong: five bad starts must not end the Hub.
        """
        self._told.restart()
        self._starting = self._begun = None
        try:
            choice = self.choose(self.user_options or {}, await self.menu())
            quotes = await self.quotes([choice.profile])
            start, ip, port = self._prepare(choice, quotes.get(choice.profile.name))
            self._starting = start
            self._begun = begin(start.run())
            self._begun.add_done_callback(self._has_begun)
            await self._await_start(start, self._begun)
        except Exception as error:
            if isinstance(error, Refused) and (self._starting is None or self._starting.lease is None):
                kept = self.keep_last(error.reason, self.user_options or {})
                if self.requester != self.user.name:  # else the form that says why shows what they had chosen
                    self.user_options = kept
            raise self._spawn_exception(error) from None
        finally:
            if self._starting is not None and self._starting.lease is not None:
                self._lease_id = self._starting.lease.id
                self._last_options = dict(self.user_options or {})
        return self.reached_at(self._lease_id, ip), port

    def _prepare(self, choice: Choice, quote: Quote | None) -> tuple[Start, str, int]:
        """All that is read from the Hub, on its own thread: its database session belongs there."""
        ip, port = self.listening()
        self.port = port
        env, base_url = self.get_env(), self.server.base_url if self.server else "/"

        def make_spec(lease: Lease) -> ServerSpec:
            return self.make_spec(lease, env)

        async def probe() -> bool:
            address = self.reached_at(start.lease.id, ip) if start.lease is not None else ""
            return bool(address) and await self.answers(address, port, base_url)

        self._unproven = False
        start = Start(self.wiring, self._request(choice, quote), make_spec, probe, self._told, self.prepare)
        return start, ip, port

    def listening(self) -> tuple[str, int]:
        """The address and port on which the next server is to listen, as this machine reaches it."""
        return reachable(self.ip), free_port()

    def reached_at(self, lease_id: str, listening: str) -> str:
        """The address at which the server of a lease is reached; "" while that is not known."""
        return listening

    async def prepare(self, start: Start) -> None:
        """What must be there before anything is held; a subclass says. Raises `Refused`."""

    def _request(self, choice: Choice, quote: Quote | None = None) -> LeaseRequest:
        profile = choice.profile
        return LeaseRequest(
            holder=self.holder,
            account=choice.account,
            profile=profile.name,
            image=choice.image,
            share=profile.share,
            count=profile.count,
            owner=self.wiring.boot,
            requested_by=self.requester,
            quote=quote,
            service_class=ServiceClass(profile.service_class),
            groups=tuple(sorted(self.groups)),
        )

    async def _await_start(self, start: Start, begun: asyncio.Task[Lease]) -> Lease:
        """The Hub cancels a start that is taken back or too slow. The start itself is never cancelled: told to
        give up, it knows what it holds."""
        try:
            return await asyncio.shield(begun)
        except asyncio.CancelledError:
            start.abort(GiveUp(StopReason.USER, CANCELLED))
            self.server = None  # else the Hub calls it ready until it stops it, a second later
            await asyncio.wait([begun], timeout=CANCEL_SECONDS)
            raise

    def _has_begun(self, begun: asyncio.Task[Lease]) -> None:
        self._looked_for_after = time.monotonic()  # a failed start has removed what an older look saw
        if not begun.cancelled():
            begun.exception()  # asyncio complains of one that nobody asked for, as after a cancelled start

    def make_spec(self, lease: Lease, env: Mapping[str, str]) -> ServerSpec:
        """What to run for a lease; called in a thread. `env` is the Hub's. A subclass says."""
        raise NotImplementedError

    async def answers(self, ip: str, port: int, base_url: str) -> bool:
        """Whether the server's own API answers. 404 is somebody else's server that took the port meanwhile."""
        if self.internal_ssl:
            return await connects(ip, port)
        code = await http_status(ip, port, f"{base_url}api")
        return code is not None and code < 500 and code != 404

    def _spawn_exception(self, error: Exception) -> SpawnException:
        if not isinstance(error, Refused):
            self.log.error("The start of %s failed:\n%s", self._log_name, traceback.format_exc())
            error = Refused(Reason.START_FAILED)
        error = explained(error, self.wiring.groups, self.groups)
        if error.__cause__ is not None:
            trace = "".join(traceback.format_exception(error.__cause__))
            self.log.error("The start of %s met trouble:\n%s", self._log_name, trace)
        return spawn_exception(error)

    # ---- stop ----------------------------------------------------------------------------------------------------

    async def stop(self, now: bool = False) -> None:
        """Write the intent, ask the server to end, force it after the grace. The slot is freed by the agent, once it
        has seen that nothing runs. Never raises: the Hub would keep a server pending for ever."""
        why = self._why_stopped()
        if self._begun is not None and not self._begun.done():
            assert self._starting is not None
            self._starting.abort(why)
            await asyncio.wait([self._begun], timeout=self.stop_grace + 5)
        lease_id = self._lease_id or await self._live_id()
        if not lease_id:
            return
        stop = Stop(self.wiring, lease_id, why, in_vain=self._start_failed_after_ready)
        await stop.run(0.0 if now else self.stop_grace)

    def _why_stopped(self) -> GiveUp:
        """A reason that is in the book already stays; this one is for a stop that came by the Hub alone."""
        if self._start_failed_after_ready:
            return GiveUp(StopReason.FAILED, FAILED_AFTER)
        by, reason = asked_by(asyncio.current_task(), self.user.name)
        return GiveUp(reason, "", by)

    @property
    def _start_failed_after_ready(self) -> bool:
        """The Hub gives up a server that does not answer *it*, or for which it could not add a route."""
        return bool(self._waiting_for_response or self._proxy_pending or self._unproven)

    async def _live_id(self) -> str:
        """The lease of this server by its holder; "" where there is none or the book does not tell."""
        try:
            lease = await in_thread(self.wiring.book.live_of, self.holder)
        except Exception:
            self.log.exception("The book cannot tell what %s holds", self._log_name)
            return ""
        return lease.id if lease is not None else ""

    # ---- poll and state ------------------------------------------------------------------------------------------

    async def poll(self) -> int | None:
        """None while it runs or nobody can tell; else the exit code, 0 where that is unknown."""
        if self._begun is not None and not self._begun.done():
            return None
        if not self._lease_id:
            return await self._poll_by_holder()
        newer_than = max(self._looked_for_after, time.monotonic() - POLL_AGE_SECONDS)
        return await exit_code(self.wiring.runtime, self._lease_id, newer_than)

    async def _poll_by_holder(self) -> int | None:
        """No state: never started here, refused, or the Hub was killed before it could save it."""
        wiring = self.wiring
        try:
            lease = await in_thread(wiring.book.live_of, self.holder)
        except Exception:
            self.log.exception("The book cannot tell whether %s runs", self._log_name)
            return None
        if lease is None:
            return 0
        if lease.state in (State.RESERVED, State.STARTING):
            # Only what was once confirmed is adopted: a start of a hub that is dead is ended by the agent.
            return None if lease.owner == wiring.boot else 0
        return await exit_code(wiring.runtime, lease.id, time.monotonic() - POLL_AGE_SECONDS)

    async def get_url(self) -> str:
        """Asked after a restart of the Hub, for a server that runs. One without state was confirmed in the moment
        the Hub was killed; until the Hub has reached it, its start counts as failed."""
        if not self._lease_id:
            self._lease_id = await self._live_id()
            self._unproven = bool(self._lease_id)
        url: str = await super().get_url()
        return url

    def start_polling(self) -> None:
        self._unproven = False
        contextvars.Context().run(super().start_polling)  # what comes later is no part of the request that started it

    def get_state(self) -> dict[str, Any]:
        state: dict[str, Any] = super().get_state()
        if self._lease_id:
            state["lease_id"] = self._lease_id
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self._lease_id = str(state.get("lease_id") or "")

    def clear_state(self) -> None:
        super().clear_state()
        self._lease_id = ""
        self._unproven = False
        if self._begun is not None and self._begun.done():
            self._begun = self._starting = None

    async def progress(self) -> AsyncIterator[dict[str, int | str]]:
        """Every step in words, for whoever looks, however late."""
        async for event in self._told.follow():
            yield event


class LocalGpuSpawner(GpuSpawner):
    """Servers as processes of this machine, each in a home of its own below `Wiring.homes`. Isolates nothing."""

    @default("cmd")
    def _default_cmd(self) -> list[str]:
        return [sys.executable, "-m", "berth_lab.launch"]

    def get_env(self) -> dict[str, str]:
        """The Hub's variables, with this environment's programs first on the path."""
        env: dict[str, str] = super().get_env()
        programs = str(Path(sys.executable).parent)
        env["PATH"] = os.pathsep.join([programs, env.get("PATH") or os.defpath])
        if sys.prefix != sys.base_prefix:
            env["VIRTUAL_ENV"] = sys.prefix
        if not env.get("SHELL") and Path("/bin/bash").exists():
            env["SHELL"] = "/bin/bash"  # a terminal is sh otherwise
        return env

    def make_spec(self, lease: Lease, env: Mapping[str, str]) -> ServerSpec:
        """The server of a lease in the user's home. Raises `OSError` where the home cannot be made."""
        wiring = self.wiring
        home = prepare_home(wiring.homes, lease.holder.user)
        place = Place(str(home), str(settings_folder()), wiring.service_url, _torch_version())
        devices = wiring.rows.devices() if lease.count else []
        return server_spec(lease, self._argv(), {**env, **wiring.server_env}, devices, place)

    def _argv(self) -> list[str]:
        as_root = ["--allow-root"] if os.geteuid() == 0 else []
        return [*self.cmd, *self.get_args(), *as_root]


# ---- functions that traitlets calls ----------------------------------------------------------------------------------


async def _validate(spawner: GpuSpawner, options: Mapping[str, object]) -> None:
    """Refuse bad options before anything of a start has happened."""
    try:
        spawner.choose(options, await spawner.menu())
    except Refused as refused:
        spawner.user_options = spawner.keep_last(refused.reason, options)
        raise spawn_exception(explained(refused, spawner.wiring.groups, spawner.groups)) from None


async def _options_form(spawner: GpuSpawner) -> str:
    return await spawner.render_form()


def _torch_version() -> str | None:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None
