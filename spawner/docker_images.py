"""Images of the host's Engine: whether one is there, and bringing one that is not, before anything is held for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Final

import docker.errors

from quota.errors import Reason, Refused
from quota.i18n import _
from spawner.docker_engine import LOOK_S, SILENCE_S, Engine, EngineSilent, telling, words
from spawner.lanes import lane
from spawner.progress import Progress
from spawner.pulling import Pulled, after
from spawner.threads import begin, in_thread

#: How often whoever waits is told, and a wish to give up is heard.
TELL_S: Final = 0.5
#: How long an image that is there is not asked for again.
KNOWN_S: Final = 30.0


class Pull:
    """One pull under way: `state` is what came so far, `cancel` ends it."""

    def __init__(self) -> None:
        self.state = Pulled()
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        self._cancelled.set()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()


class Images:
    """The images of the Engine. Calls block."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._there: dict[str, float] = {}

    @lane("look")
    def present(self, reference: str) -> bool:
        """Whether the image is on this host. Raises `EngineSilent`."""
        if time.monotonic() - self._there.get(reference, float("-inf")) < KNOWN_S:
            return True
        try:
            with telling():
                self._engine.client(LOOK_S).inspect_image(reference)
        except docker.errors.NotFound:
            self._there.pop(reference, None)
            return False
        self._there[reference] = time.monotonic()
        return True

    @lane("pull")
    def pull(self, reference: str, pull: Pull) -> None:
        """Bring it, or end early once `pull` is cancelled: the Engine stops when nobody listens. Raises `RuntimeError`
        in words."""
        name, tag = _split(reference)
        try:
            with telling():
                client = self._engine.client(SILENCE_S)
                with closing(client.pull(name, tag=tag, stream=True, decode=True)) as lines:
                    for line in lines:
                        pull.state = after(pull.state, line)
                        if pull.cancelled:
                            return
        except docker.errors.APIError as error:
            raise RuntimeError(words(error)) from error
        if pull.state.error:
            raise RuntimeError(pull.state.error)


def _split(reference: str) -> tuple[str, str]:
    """Name and tag, "latest" where none is given: without one the Engine would bring all of them. A digest is none."""
    if "@" in reference:
        return reference, ""
    head, slash, last = reference.rpartition("/")
    name, colon, tag = last.partition(":")
    return f"{head}{slash}{name}", tag if colon else "latest"


async def brought(
    images: Images,
    reference: str,
    title: str,
    told: Progress,
    check: Callable[[], None],
    *,
    may_pull: bool,
    patience_s: float,
) -> None:
    """Wait until the image is there, telling how far it is. `check` raises where the start is given up; the pull is
    cancelled then. Raises `Refused(IMAGE_MISSING)` (facts `image`, `why`)."""
    try:
        if await in_thread(images.present, reference):
            return
    except (EngineSilent, docker.errors.APIError) as error:
        raise Refused(Reason.IMAGE_MISSING, image=title, why=words(error)) from error
    if not may_pull:
        raise Refused(Reason.IMAGE_MISSING, image=title, why=_("it is not on this host, and may not be fetched"))
    pull, began, last = Pull(), time.monotonic(), ""
    bringing = begin(in_thread(images.pull, reference, pull))
    bringing.add_done_callback(lambda task: task.cancelled() or task.exception())
    try:
        while not bringing.done():
            check()
            if time.monotonic() - began > patience_s:
                why = _("it did not come within %(minutes)s minutes", minutes=round(patience_s / 60))
                raise Refused(Reason.IMAGE_MISSING, image=title, why=why)
            said = _how_far(title, pull.state)
            if said != last:
                told.say(5 + (pull.state.percent or 0) * 15 // 100, said)
                last = said
            await asyncio.wait([bringing], timeout=TELL_S)
        check()
    finally:
        pull.cancel()
    trouble = bringing.exception()
    if trouble is not None:
        raise Refused(Reason.IMAGE_MISSING, image=title, why=words(trouble)) from trouble
    if not await in_thread(images.present, reference):
        raise Refused(Reason.IMAGE_MISSING, image=title, why=_("it was fetched and is not there"))


def _how_far(title: str, state: Pulled) -> str:
    if state.percent is None:
        return _("Fetching the image “%(image)s”; nothing is charged meanwhile", image=title)
    return _(
        "Fetching the image “%(image)s”: %(percent)s %% of %(size)s MB so far; nothing is charged meanwhile",
        image=title,
        percent=state.percent,
        size=sum(layer.size or 0 for layer in state.layers.values()) // 1_000_000,
    )
