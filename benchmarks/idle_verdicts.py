"""Who is stopped, on histories with a known ground truth: our verdicts beside jupyterhub-idle-culler's.

`python -m benchmarks.idle_verdicts --json [--seed 1] [--count 240] [--every 60]`

The histories are those of `tests.golden` (their labels come from the workload, never from a verdict). Ours is the
culler's own `read` and `decide` on each history's signals. Theirs is the package's own `cull_idle`, unchanged, against
a served Hub API whose list of users carries what a Hub would have known of each history: its `last_activity`; its
clock is set by `utcnow`, which is there for that. Both look as often and have the same limits.

`busy_stopped` are sessions in which somebody worked when they were stopped, `held_minutes` idle minutes beyond the
limit. The exit code is 1 where ours stopped a busy one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from aiohttp import web

from benchmarks.common import arguments, machine, show
from idle_culler.decide import Policy

POLICY = Policy()
#: Kinds that our culler keeps on purpose: one that computes all the time is shown to admins, never stopped by itself.
ON_PURPOSE = ("keep-busy tool",)


@dataclass
class ServedHub:
    """The Hub of many histories at one moment: those that still run, each a user with one server."""

    histories: dict[str, Any]
    at: float = 0.0
    stopped: dict[str, int] = field(default_factory=dict)
    _place: dict[str, int] = field(default_factory=dict)
    _shown: dict[str, str | None] = field(default_factory=dict)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/{group}/", self._version)
        app.router.add_get("/{group}/users", self._users)
        app.router.add_delete("/{group}/users/{user}/server", self._stop)
        return app

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "5.3.0"})

    async def _users(self, request: web.Request) -> web.Response:
        gpus = request.match_info["group"] == "gpu"
        items = [self._model(each) for each in self.histories.values() if bool(each.gpus) == gpus and self._runs(each)]
        return web.json_response({"items": items, "_pagination": {"next": None, "total": len(items)}})

    async def _stop(self, request: web.Request) -> web.Response:
        self.stopped[request.match_info["user"]] = int(self.at // 60)
        return web.Response(status=204)

    def _runs(self, history: Any) -> bool:
        asleep = any(begin <= self.at < end for begin, end in history.naps)
        return history.name not in self.stopped and self.at < history.seconds and not asleep

    def _model(self, history: Any) -> dict[str, Any]:
        from tests.golden.generate import moment

        name = history.name
        place = self._place.get(name, 0)
        while place < len(history.rows) and history.rows[place].at <= self.at:
            if history.rows[place].source == "hub":
                self._shown[name] = history.rows[place].payload["last_activity"]
            place += 1
        self._place[name] = place
        server = {
            "name": "",
            "ready": True,
            "pending": None,
            "url": f"/user/{name}/",
            "started": moment(0).isoformat(),
            "last_activity": self._shown.get(name),
        }
        shown = {"name": name, "admin": False, "server": server["url"], "last_activity": server["last_activity"]}
        return {**shown, "servers": {"": server}}


async def theirs(histories: Iterable[Any], every: float) -> dict[str, int]:
    """The minute in which jupyterhub-idle-culler stopped each history; those it never stopped are not in it."""
    import jupyterhub_idle_culler as package

    from tests.golden.generate import moment  # a program of the clone, not of an installation

    hub = ServedHub({each.name: each for each in histories})
    runner = web.AppRunner(hub.app())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    quiet = logging.getLogger("benchmarks.idle_verdicts.theirs")
    quiet.setLevel(logging.CRITICAL)
    before, last = package.utcnow, max(each.seconds for each in hub.histories.values())

    def now() -> datetime:
        return moment(hub.at)

    try:
        package.utcnow = now
        while hub.at < last:
            hub.at += every
            for group, limit in (("gpu", POLICY.idle_gpu), ("cpu", POLICY.idle_cpu)):
                await package.cull_idle(f"{url}/{group}", "token", limit, quiet)
    finally:
        package.utcnow = before
        await runner.cleanup()
    return hub.stopped


def figures(outcomes: Iterable[Any]) -> dict[str, dict[str, float]]:
    """By kind and in all."""
    from tests.golden.replay import summed

    return {
        kind: {
            "histories": row["histories"],
            "stopped": row["stopped"],
            "busy_stopped": row["busy"],
            "held_minutes": row["beyond"],
            "held_of_idle": round(row["beyond"] / row["idle"], 4) if row["idle"] else 0.0,
        }
        for kind, row in summed(outcomes).items()
    }


def measure(seed: int, count: int, every: float) -> dict[str, Any]:
    from tests.golden.generate import histories
    from tests.golden.replay import judged, outcome

    made = list(histories(seed, count))
    ended = asyncio.run(theirs(made, every))
    ours = figures(judged(each, POLICY, every) for each in made)
    others = figures(outcome(each, ended.get(each.name), POLICY) for each in made)
    every_kind = {kind: {"ours": ours[kind], "jupyterhub-idle-culler": others[kind]} for kind in sorted(ours)}
    meant = [each for each in made if each.kind not in ON_PURPOSE]
    compared = {
        "ours": figures(judged(each, POLICY, every) for each in meant)["all"],
        "jupyterhub-idle-culler": figures(outcome(each, ended.get(each.name), POLICY) for each in meant)["all"],
    }
    return {"all": every_kind.pop("all"), f"without {', '.join(ON_PURPOSE)}": compared, "kinds": every_kind}


def main(words: list[str] | None = None) -> int:
    parser = arguments("idle_verdicts", __doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the histories (1)")
    parser.add_argument("--count", type=int, default=240, help="how many histories (240)")
    parser.add_argument("--every", type=float, default=60, help="seconds of their time between two looks (60)")
    options = parser.parse_args(words)
    found = measure(options.seed, options.count, options.every)
    setting = {"benchmark": "idle_verdicts", "seed": options.seed, "histories": options.count}
    show(setting | {"machine": machine()} | found, options.json)
    return 1 if found["all"]["ours"]["busy_stopped"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
