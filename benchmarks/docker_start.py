"""Servers in containers: Berth against stock DockerSpawner with npm's proxy, same image, same Engine, one run.

    python -m benchmarks.docker_start --engine unix:///run/docker.sock --image lab/base:1 [--pairs 10] [--burst 20]
        [--gone 10] [--chp PATH] [--json]

Three figures. *start*: request to the first answer of the server's own /api through the proxy, in alternating pairs,
one of each thrown away first; target: the median over pairs at most 0.65 of stock. *burst*: so many users start at
once, on one side after the other; target: our slowest is no slower than stock's slowest. *gone*: a container is killed
with a whole (simulated) GPU; seconds until that GPU is free in the book; target: median at most 2 s.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import docker

from benchmarks.common import machine
from benchmarks.start import BIN, CHP, Hub, chp_version, environment, free_port, own_token, running, wait_until

TARGETS = {"start_ratio": 0.65, "burst_ratio": 1.0, "gone_median": 2.0}
OURS = """
[backend]
kind = "docker"
[docker]
url = "{engine}"
pull = "never"
[gpus]
source = "simulated"
simulated = 4
[first_start]
max_servers = 1000
max_gpus = 4
[[images]]
name = "lab"
reference = "{image}"
[[profiles]]
name = "cpu"
share = 0
[[profiles]]
name = "gpu-1"
share = 1
"""
STOCK = """
c = get_config()
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://{gateway}:{hub}"
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.spawner_class = "docker"
c.DockerSpawner.client_kwargs = {{"base_url": {engine!r}}}
c.DockerSpawner.image = {image!r}
c.DockerSpawner.cmd = ["jupyterhub-singleuser"]
c.DockerSpawner.network_name = {network!r}
c.DockerSpawner.use_internal_ip = True
c.DockerSpawner.remove = True
c.Spawner.start_timeout = 300
c.Spawner.http_timeout = 300
c.Authenticator.allow_all = True
c.JupyterHub.services = [{{"name": "measure", "api_token": {token!r}}}]
c.JupyterHub.load_roles = [{{"name": "measure", "services": ["measure"], "scopes": ["admin:users", "admin:servers"]}}]
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is measured, and where."""

    engine: str
    image: str
    chp: str
    pairs: int
    burst: int
    gone: int


@contextmanager
def berth(folder: Path, asked: Asked) -> Iterator[tuple[Hub, Path]]:
    data, port = folder / "data", free_port()
    data.mkdir(mode=0o700)
    (data / "berth.toml").write_text(OURS.format(engine=asked.engine, image=asked.image), encoding="utf-8")
    url = f"http://127.0.0.1:{port}"
    script = [str(BIN / "berth")] if (BIN / "berth").exists() else [sys.executable, "-m", "hub_config"]
    with running([*script, "up", "--data", str(data), "--port", str(port)], folder, url, "/services/berth/health"):
        login = json.loads((data / "secrets" / "passwords.json").read_text(encoding="utf-8"))["admin"]
        token = own_token(url, login["name"], login["password"])
        hub = Hub(url, "ours", token, {"profile": "cpu"})
        hub.client.post("/hub/api/users/ours").raise_for_status()
        yield hub, data


@contextmanager
def stock(folder: Path, asked: Asked) -> Iterator[Hub]:
    client = docker.DockerClient(base_url=asked.engine)
    network = client.networks.create(f"bench-{os.getpid()}", driver="bridge")
    try:
        network.reload()
        gateway = network.attrs["IPAM"]["Config"][0]["Gateway"]
        port, token = free_port(), os.urandom(16).hex()
        url = f"http://127.0.0.1:{port}"
        config = STOCK.format(
            port=port,
            hub=free_port(),
            gateway=gateway,
            engine=asked.engine,
            image=asked.image,
            network=network.name,
            token=token,
        ) + CHP.format(command=[asked.chp], api=free_port(), pid=str(folder / "proxy.pid"))
        (folder / "jupyterhub_config.py").write_text(config, encoding="utf-8")
        with running([sys.executable, "-m", "jupyterhub"], folder, url, "/hub/health"):
            hub = Hub(url, "stock", token, {})
            hub.client.post("/hub/api/users/stock").raise_for_status()
            yield hub
    finally:
        for container in client.containers.list(all=True, filters={"network": network.name}):
            container.remove(force=True)
        network.remove()
        client.close()


# ---- the three figures -------------------------------------------------------------------------------------------


def pairs(ours: Hub, theirs: Hub, number: int) -> dict[str, Any]:
    """Seconds of each start; the ratio is the median over pairs."""
    took: dict[str, list[float]] = {"berth": [], "stock": []}
    for pair in range(number + 1):
        sides = [("berth", ours), ("stock", theirs)]
        for name, hub in sides if pair % 2 else reversed(sides):
            seconds = hub.measure()
            print(f"{'warm-up' if not pair else f'pair {pair}'}: {name} {seconds:.2f} s", file=sys.stderr)
            if pair:
                took[name].append(round(seconds, 3))
    ratios = [mine / yours for mine, yours in zip(took["berth"], took["stock"], strict=True)]
    return {
        **took,
        "berth_median": round(statistics.median(took["berth"]), 3),
        "stock_median": round(statistics.median(took["stock"]), 3),
        "start_ratio": round(statistics.median(ratios), 3),
    }


def at_once(hub: Hub, number: int, prefix: str) -> list[float]:
    """Seconds of so many starts that are asked for in one moment, each of a user of its own; then all are stopped."""
    users = [f"{prefix}{each}" for each in range(number)]
    for user in users:
        hub.client.post(f"/hub/api/users/{user}").raise_for_status()
    each = [Hub(hub.url, user, hub.client.headers["Authorization"].split()[1], hub.options) for user in users]
    began = time.monotonic()

    def one(mine: Hub) -> float:
        mine.client.post(f"/hub/api/users/{mine.user}/server", json=mine.options, timeout=300).raise_for_status()
        wait_until(mine._answers, f"{mine.user} answers")
        return time.monotonic() - began

    with ThreadPoolExecutor(number) as pool:
        took = list(pool.map(one, each))
    for mine in each:
        mine.client.delete(f"/hub/api/users/{mine.user}/server")
    for mine in each:
        wait_until(lambda mine=mine: mine._server().get("stopped", True), f"{mine.user} has stopped")  # type: ignore[misc]
    return [round(seconds, 2) for seconds in took]


def until_free(hub: Hub, data: Path, asked: Asked) -> list[float]:
    """Seconds from a container's end to the moment in which its GPU is free in the book."""
    found = []
    mine = Hub(hub.url, hub.user, hub.client.headers["Authorization"].split()[1], {"profile": "gpu-1"})
    client = docker.DockerClient(base_url=asked.engine)
    for _ in range(asked.gone):
        mine.client.post(f"/hub/api/users/{mine.user}/server", json=mine.options).raise_for_status()
        wait_until(mine._answers, "the server answers")
        wait_until(lambda: _held(data) == 1, "a GPU is held")
        (container,) = client.containers.list(filters={"label": f"berth.user={mine.user}"})
        container.kill()
        began = time.monotonic()
        wait_until(lambda: _held(data) == 0, "it is free again")
        found.append(round(time.monotonic() - began, 3))
        wait_until(lambda: mine._server().get("stopped", True), "the Hub has taken note")
    client.close()
    return found


def _held(data: Path) -> int:
    with sqlite3.connect(data / "book.sqlite", timeout=30) as book:
        row = book.execute("SELECT count(*) FROM slot WHERE released_at IS NULL AND share > 0").fetchone()
    return int(row[0])


def measure(asked: Asked) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-bench-")))
        for name in ("ours", "stock"):
            (folder / name).mkdir()
        ours, data = stack.enter_context(berth(folder / "ours", asked))
        theirs = stack.enter_context(stock(folder / "stock", asked))
        found: dict[str, Any] = {"benchmark": "docker_start"}
        if asked.pairs:
            found["start"] = pairs(ours, theirs, asked.pairs)
        if asked.gone:
            gone = until_free(ours, data, asked)
            found["gone"] = {"seconds": gone, "gone_median": round(statistics.median(gone), 3)}
        if asked.burst:
            mine, yours = at_once(ours, asked.burst, "burst"), at_once(theirs, asked.burst, "burst")
            ratio = round(max(mine) / max(yours), 3)
            found["burst"] = {"berth_slowest": max(mine), "stock_slowest": max(yours), "burst_ratio": ratio}
        proxy = f"configurable-http-proxy {chp_version(asked.chp)} (npm)"
        found["stock_is"] = {"spawner": f"DockerSpawner {version('dockerspawner')}", "proxy": proxy}
        found["machine"] = {**machine(), "engine": docker.DockerClient(base_url=asked.engine).version()["Version"]}
        return found


def missed(found: dict[str, Any]) -> list[str]:
    """Which targets were not met."""
    figures = {name: value for part in found.values() if isinstance(part, dict) for name, value in part.items()}
    return [f"{name} {figures[name]} > {most}" for name, most in TARGETS.items() if figures.get(name, 0) > most]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.docker_start", description=__doc__.splitlines()[0])
    parser.add_argument("--engine", required=True, help="the Engine's address")
    parser.add_argument("--image", required=True, help="an image with JupyterLab and Berth's kit")
    parser.add_argument("--chp", default=shutil.which("configurable-http-proxy") or "", help="npm's proxy")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--burst", type=int, default=20)
    parser.add_argument("--gone", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    if not args.chp:
        parser.error("npm's configurable-http-proxy is needed: npm install configurable-http-proxy, then --chp PATH")
    os.environ.update(environment())
    found = measure(Asked(args.engine, args.image, args.chp, args.pairs, args.burst, args.gone))
    print(json.dumps(found) if args.json else json.dumps(found, indent=2))
    for words in missed(found):
        print(f"missed: {words}", file=sys.stderr)
    return 1 if missed(found) else 0


if __name__ == "__main__":
    sys.exit(main())
