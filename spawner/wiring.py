"""What the composition root hands to the Hub's spawner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from quota.groups import Group
from quota.leaving import NO_GRACE, Graces
from quota.ports import Clock, Place
from spawner.box import BoxPlan
from spawner.ports import Runtime
from spawner.profiles import Profile
from spawner.rules import Offer, Quotes

if TYPE_CHECKING:
    from quota.bank import Bank
    from quota.book import Book
    from quota.rows import Rows
    from quota.way_out import LeavingFarewells, WayOut
    from spawner.docker_engine import Engine
    from spawner.docker_images import Images
    from spawner.docker_runtime import DockerRuntime


@dataclass(frozen=True)
class DockerWiring:
    """Parts of the Docker backend. `may_pull` says whether an image that is not on the host is fetched, and
    `pull_patience_s` how long that is waited for."""

    engine: Engine
    runtime: DockerRuntime
    images: Images
    plan: BoxPlan
    may_pull: bool = True
    pull_patience_s: float = 1800.0


@dataclass(frozen=True)
class Wiring:
    """Parts of one hub process. Their calls block, so the spawner makes them in threads.

    `boot` is the random id of this process, whose heartbeat somebody else keeps fresh. `images` maps names to titles in
    the order people see them. `backend_words` says what the backend isolates. `start_timeout_s` is how long a server
    may take to answer; the Hub's own `start_timeout` must be longer by the wait for an earlier run (`EARLIER_SECONDS`).
    `service_url` is where servers reach service `berth`, with its prefix; empty where there is none. `groups` are
    those that the site's settings name. `offer` is the site's own rule of who is offered what, and
    `quotes` of what it costs them. `graces` is how long a server may save before it is ended, `server_env` what
    every server is told besides; `farewells` are the same book's unless others are given. `docker` is what the Docker
    backend needs besides.
    """

    book: Book
    bank: Bank
    rows: Rows
    runtime: Runtime
    clock: Clock
    boot: str
    host: str
    profiles: Sequence[Profile]
    images: Mapping[str, str]
    place: Place
    homes: Path
    backend_words: str
    start_timeout_s: float
    service_url: str = ""
    groups: Sequence[Group] = ()
    offer: Offer | None = None
    quotes: Quotes | None = None
    graces: Graces = NO_GRACE
    server_env: Mapping[str, str] = field(default_factory=dict)
    farewells: LeavingFarewells | None = None
    docker: DockerWiring | None = None

    @cached_property
    def way_out(self) -> WayOut:
        """How a server is stopped."""
        from quota.farewells import Farewells
        from quota.way_out import WayOut

        farewells = self.farewells or Farewells(self.book.store, self.clock)
        return WayOut(self.book, self.rows, farewells, self.clock, self.graces)
