"""What the kernels of this server are doing, told from execute messages alone.

`KernelState` is the rule, without a socket: an *execution* begins with `status: busy` or `execute_input` whose
parent is an `execute_request` and ends with its `status: idle`. Status polls, debug, kernel-info, completion and comm
messages change nothing. A state starts *unsighted* (busy is None, unknown) and is sighted once the kernel has
answered a probe of ours on its iopub channel: from then on nothing can begin unseen. Whoever was not sighted for
longer than a moment is taken to have been used up to the sighting.

`KernelWatch` listens to one kernel, `Watch` to all of a kernel manager.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import zmq
from jupyter_client.session import Session, utcnow
from tornado.ioloop import IOLoop
from zmq.eventloop.zmqstream import ZMQStream
from zmq.utils.monitor import parse_monitor_message

log = logging.getLogger("berth_lab")

#: A silent request (it publishes no `execute_input`) is a front end's own question; only a longer one is use.
SILENT_IS_USE = timedelta(seconds=1)
#: A kernel unsighted for longer than this may have run something meanwhile.
BLIND_IS_USE = timedelta(seconds=10)
#: How often the list of kernels is read; events tell of most changes at once.
SYNC_SECONDS = 5.0
#: Between the answer to a probe on the shell channel and the verdict that iopub did not bring its status.
PROBE_AGAIN_SECONDS = 0.5
#: A probe that is not answered is followed by another after this long, then twice as long, and so on: the kernel may
#: be busy, or the probe may have gone to a process that was just ending.
PROBE_PATIENCE_SECONDS = 2.0
PROBE_PATIENCE_MOST = 3600.0

#: Messages worth reading; a cheap look at the header spares the rest the parsing.
WORTH_READING = (b"status", b"execute_input")
OWN_TOPIC = b"kernel."
KERNEL_EVENTS = "https://events.jupyter.org/jupyter_server/kernel_actions/v1"


def stamp(moment: datetime | None) -> str | None:
    """RFC 3339 in UTC."""
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")


@dataclass(slots=True)
class Run:
    """One execution in flight."""

    since: datetime
    speaker: str = ""  # the session that told of it: another process of the kernel has another
    spoke: bool = False  # it published its input, so it is not a front end's silent question


@dataclass(slots=True)
class KernelState:
    """What is known of one kernel."""

    id: str
    blind_since: datetime | None  # None once sighted
    running: dict[str, Run] = field(default_factory=dict)  # by the request's msg_id; subshells run several
    last_execute_at: datetime | None = None
    _done: str = ""  # the last request that ended, in case its input arrives late

    @property
    def busy(self) -> bool | None:
        if self.running:
            return True
        return None if self.blind_since is not None else False

    def message(
        self, kind: str, parent: dict[str, Any], content: dict[str, Any], now: datetime, speaker: str = ""
    ) -> None:
        """Take in one iopub message of the session `speaker`; what is not about an execution changes nothing."""
        request = parent.get("msg_id")
        if parent.get("msg_type") != "execute_request" or not isinstance(request, str):
            return
        if kind == "execute_input":
            self._begin(request, now, speaker, spoke=True)
        elif kind == "status" and content.get("execution_state") == "busy":
            self._begin(request, now, speaker, spoke=False)
        elif kind == "status" and content.get("execution_state") == "idle":
            self._end(request, now)

    def _begin(self, request: str, now: datetime, speaker: str, *, spoke: bool) -> None:
        if request == self._done:
            return
        run = self.running.setdefault(request, Run(now, speaker))
        if spoke:
            run.spoke = True
            self.last_execute_at = now

    def _end(self, request: str, now: datetime) -> None:
        self._done = request
        run = self.running.pop(request, None)
        if run is None or run.spoke or now - run.since >= SILENT_IS_USE:
            self.last_execute_at = now

    def sighted(self, now: datetime, speaker: str = "") -> None:
        """The kernel has answered as `speaker`: its main shell is free, and whatever begins from now on is seen. What
        it was seen to begin before goes on until it is seen to end (on a subshell, it may); what was told by another
        process ended with that one (its last words may be read after its end)."""
        if self.blind_since is None:
            return
        ended = [request for request, run in self.running.items() if run.speaker != speaker]
        for request in ended:
            del self.running[request]
        if ended or now - self.blind_since > BLIND_IS_USE:
            self.last_execute_at = now
        self.blind_since = None

    def blinded(self, now: datetime) -> None:
        """Its connection broke (a restart, mostly). What ran may or may not go on: unknown."""
        if self.running:
            self.running.clear()
            self.last_execute_at = now
        if self.blind_since is None:
            self.blind_since = now

    def report(self) -> dict[str, Any]:
        """One kernel as service `berth` takes it."""
        return {
            "id": self.id,
            "busy": self.busy,
            "last_execute_at": stamp(self.last_execute_at),
            "busy_since": stamp(min((run.since for run in self.running.values()), default=None)),
        }


class KernelWatch:
    """Own iopub listener of one kernel, on the server's event loop.

    A probe is a `kernel_info_request` on the shell channel. The kernel answers it in turn, after whatever it runs,
    and says so on iopub: when *that* status arrives, the subscription works and the shell is free.
    """

    def __init__(self, state: KernelState, manager: Any, changed: Callable[[], None]) -> None:
        """`manager` is a jupyter_client KernelManager. Raises whatever its `connect_*` raise."""
        self.state = state
        self._manager = manager
        self._changed = changed
        self._session = Session(  # digests of past messages are not kept: 65,536 of them are megabytes
            key=manager.session.key, signature_scheme=manager.session.signature_scheme, digest_history_size=0
        )
        self._probe = ""
        self._shell: ZMQStream | None = None
        self._timer: object | None = None
        self._patience = PROBE_PATIENCE_SECONDS
        self._narrowed = False
        self._iopub = _stream(manager.connect_iopub())
        self._iopub.on_recv(self._on_iopub)
        self._monitor = _monitor_of(self._iopub.socket, zmq.EVENT_DISCONNECTED)
        self._monitor.on_recv(self._on_monitor)
        self.probe()

    @property
    def broken(self) -> bool:
        return bool(self._iopub.closed() or self._monitor.closed())

    def probe(self) -> None:
        """Ask the kernel for a sign, on a fresh connection (a restart loses what was queued on the old one)."""
        self._drop_shell()
        self._shell = _stream(self._manager.connect_shell())
        self._shell.on_recv(self._on_shell)
        self._send_probe()

    def _send_probe(self) -> None:
        if self._shell is None or self._shell.closed():
            return
        sent: Any = self._session.send(self._shell, "kernel_info_request")
        self._probe = sent["header"]["msg_id"]
        self._later(self._patience, self.probe)
        self._patience = min(self._patience * 2, PROBE_PATIENCE_MOST)

    def _on_shell(self, frames: list[bytes]) -> None:
        """The probe was answered; its status is on its way, unless iopub was not subscribed yet."""
        self._patience = PROBE_PATIENCE_SECONDS
        self._later(PROBE_AGAIN_SECONDS, self._send_probe)

    def _on_monitor(self, frames: list[bytes]) -> None:
        if parse_monitor_message(frames)["event"] == zmq.EVENT_DISCONNECTED:
            self.state.blinded(utcnow())
            self._patience = PROBE_PATIENCE_SECONDS
            self.probe()
            self._changed()

    def _on_iopub(self, frames: list[bytes]) -> None:
        try:
            message = self._read(frames)
        except Exception:  # an ill-formed or forged message is not ours to complain about
            log.debug("an iopub message of kernel %s could not be read", self.state.id, exc_info=True)
            return
        if message is None:
            return
        before = self.state.busy
        parent, header = message["parent_header"] or {}, message["header"]
        speaker = str(header.get("session", ""))
        if self._probe and parent.get("msg_id") == self._probe:
            self.state.sighted(utcnow(), speaker)
            self._probe = ""
            self._drop_shell()
        else:
            self.state.message(header["msg_type"], parent, message["content"], utcnow(), speaker)
        if self.state.busy is not before:
            self._changed()

    def _read(self, frames: list[bytes]) -> dict[str, Any] | None:
        topics, parts = self._session.feed_identities(frames)
        header: Any = parts[1]
        if not any(word in header for word in WORTH_READING):
            return None
        message: dict[str, Any] = self._session.deserialize(parts)
        if not self._narrowed and message["header"]["msg_type"] == "status" and topics[0].startswith(OWN_TOPIC):
            # ipykernel's topics: with these alone, a flood of output neither reaches nor crowds out what we read.
            self._iopub.socket.setsockopt(zmq.SUBSCRIBE, OWN_TOPIC)
            self._iopub.socket.setsockopt(zmq.UNSUBSCRIBE, b"")
            self._narrowed = True
        return message

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._cancel()
        self._timer = IOLoop.current().call_later(seconds, call)

    def _cancel(self) -> None:
        if self._timer is not None:
            IOLoop.current().remove_timeout(self._timer)
            self._timer = None

    def _drop_shell(self) -> None:
        self._cancel()
        if self._shell is not None and not self._shell.closed():
            self._shell.close(linger=0)
        self._shell = None

    def close(self) -> None:
        self._drop_shell()
        if not self._iopub.closed():
            self._iopub.socket.disable_monitor()
            self._iopub.close(linger=0)
        if not self._monitor.closed():
            self._monitor.close(linger=0)


def _stream(socket: Any) -> ZMQStream:
    """Servers' kernel managers hand out streams, plain ones sockets."""
    return socket if isinstance(socket, ZMQStream) else ZMQStream(socket)


def _monitor_of(socket: zmq.Socket[bytes], events: int) -> ZMQStream:
    """A stream of a socket's connection events (`get_monitor_socket` would make an asyncio socket of some contexts)."""
    address = f"inproc://berth-monitor-{secrets.token_hex(8)}"
    socket.monitor(address, events)
    pair: zmq.Socket[bytes] = socket.context.socket(zmq.PAIR, socket_class=zmq.Socket)
    pair.linger = 0
    pair.connect(address)
    return ZMQStream(pair)


class Watch:
    """All kernels of a server. `changed` is called when one turns busy, idle or unknown, or comes or goes."""

    def __init__(self, kernels: Any, changed: Callable[[], None]) -> None:
        """`kernels` is the server's mapping kernel manager."""
        self._kernels = kernels
        self._changed = changed
        self._states: dict[str, KernelState] = {}
        self._watches: dict[str, KernelWatch] = {}

    def report(self) -> list[dict[str, Any]]:
        return [state.report() for state in self._states.values()]

    def sync(self) -> None:
        """Follow the server's list of kernels, and listen again where a listener broke."""
        there = set(self._kernels.list_kernel_ids())
        for gone in self._states.keys() - there:
            del self._states[gone]
            self._drop(gone)
            self._changed()
        for kernel_id in there:
            if kernel_id not in self._states:
                self._states[kernel_id] = KernelState(kernel_id, blind_since=utcnow())
                self._changed()
            watch = self._watches.get(kernel_id)
            if watch is not None and watch.broken:
                self._states[kernel_id].blinded(utcnow())
                self._drop(kernel_id)
                watch = None
            if watch is None:
                self._listen(kernel_id)

    def _listen(self, kernel_id: str) -> None:
        try:
            manager = self._kernels.get_kernel(kernel_id)
            self._watches[kernel_id] = KernelWatch(self._states[kernel_id], manager, self._changed)
        except Exception:  # not connectable yet, or never (a gateway's kernel): it stays unknown
            log.debug("kernel %s cannot be listened to", kernel_id, exc_info=True)

    def _drop(self, kernel_id: str) -> None:
        watch = self._watches.pop(kernel_id, None)
        if watch is not None:
            watch.close()

    def close(self) -> None:
        for kernel_id in list(self._watches):
            self._drop(kernel_id)
