"""Start request to answering server: Berth against JupyterHub's defaults, on this machine, in alternating pairs.

    python -m benchmarks.start --json [--pairs 10] [--chp PATH] [--profile gpu-1-8]

Berth is `berth up` in a folder of its own, lease, placement and ledger included. JupyterHub's defaults are
SimpleLocalProcessSpawner with `jupyterhub-singleuser` and the proxy that is JupyterHub's default, npm's
configurable-http-proxy, taken from --chp or PATH; where there is none, jupyterhub-traefik-proxy as it comes, which is
told in the result. Both hubs run all the time and idle while the other one is measured. A start is measured from the
POST to the first 200 of the server's own /api through the public proxy; one start of each is thrown away first, since
it compiles and reads from disk.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx

POLL_SECONDS = 0.02
PATIENCE_SECONDS = 120
FOREIGN = ("BERTH_", "JUPYTERHUB_", "JUPYTER_", "JPY_", "CUDA_", "NVIDIA_", "CONFIGPROXY_")
BIN = Path(sys.executable).parent

STOCK = """
c = get_config()
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub}"
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {homes!r} + "/{{username}}"
c.Authenticator.allow_all = True
c.Spawner.args = {args!r}
c.JupyterHub.services = [{{"name": "measure", "api_token": {token!r}}}]
c.JupyterHub.load_roles = [{{"name": "measure", "services": ["measure"], "scopes": ["admin:users", "admin:servers"]}}]
"""
CHP = """
c.ConfigurableHTTPProxy.command = {command!r}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api}"
c.ConfigurableHTTPProxy.pid_file = {pid!r}
"""
TRAEFIK = """
c.JupyterHub.proxy_class = "traefik_file"
c.TraefikProxy.traefik_api_url = "http://127.0.0.1:{api}"
"""


class Hub:
    """One hub that is up: where it is, as whom it is asked, what a start sends."""

    def __init__(self, url: str, user: str, token: str, options: dict[str, str]) -> None:
        self.url, self.user, self.options = url, user, options
        self.client = httpx.Client(base_url=url, headers={"Authorization": f"token {token}"}, timeout=PATIENCE_SECONDS)
        self.plain = httpx.Client(base_url=url, timeout=10)  # the server's /api asks for no token

    def measure(self) -> float:
        """Seconds of one start, from the request to the first answer of the server itself; then it is stopped."""
        server = f"/hub/api/users/{self.user}/server"
        with ThreadPoolExecutor(1) as pool:
            began = time.monotonic()
            asked = pool.submit(self.client.post, server, json=self.options)
            wait_until(self._answers, f"{self.url}: the server of {self.user} answers", lambda: failure(asked))
            took = time.monotonic() - began
            if asked.result().status_code not in (201, 202):
                raise SystemExit(f"{self.url}: {asked.result().status_code} {asked.result().text}")
        wait_until(lambda: self._server().get("ready"), f"{self.url}: the Hub calls the server ready")
        self.client.delete(server).raise_for_status()
        wait_until(lambda: self._server().get("stopped", True), f"{self.url}: the server has stopped")
        return took

    def _answers(self) -> bool:
        try:
            answer = self.plain.get(f"/user/{self.user}/api")
        except httpx.HTTPError:
            return False
        return answer.status_code == 200 and "version" in answer.text

    def _server(self) -> dict[str, Any]:
        model = self.client.get(f"/hub/api/users/{self.user}").raise_for_status().json()
        return dict(model.get("servers", {}).get("", {}))


def failure(asked: Any) -> str:
    """Words once the request itself has failed, so that nobody waits for its server."""
    if not asked.done():
        return ""
    answer = asked.result()
    return f"{answer.status_code} {answer.text}" if answer.status_code >= 400 else ""


def wait_until(what: Callable[[], Any], words: str, failed: Callable[[], str] = lambda: "") -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        if why := failed():
            raise SystemExit(f"{words}: {why}")
        if time.monotonic() > deadline:
            raise SystemExit(f"{words}: not within {PATIENCE_SECONDS} s")
        time.sleep(POLL_SECONDS)


# ---- the two hubs ------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return kept | {"PATH": f"{BIN}{os.pathsep}{kept.get('PATH', os.defpath)}"}


@contextmanager
def running(argv: list[str], folder: Path, url: str, path: str) -> Iterator[None]:
    """A process with everything it starts, from the first answer on; ended in good order, else by force."""
    log = folder / "output.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        end = f"\n{log}:\n"
        wait_until(
            lambda: up(url + path),
            f"{argv[0]} answers at {url}",
            lambda: "" if process.poll() is None else end + log.read_text(errors="replace")[-2000:],
        )
        yield
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def up(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


@contextmanager
def berth(folder: Path, profile: str) -> Iterator[Hub]:
    data, port = folder / "data", free_port()
    url = f"http://127.0.0.1:{port}"
    script = [str(BIN / "berth")] if (BIN / "berth").exists() else [sys.executable, "-m", "hub_config"]
    with running([*script, "up", "--data", str(data), "--port", str(port)], folder, url, "/services/berth/health"):
        told = subprocess.check_output([*script, "passwords", "--json", "--data", str(data)], env=environment())
        login = json.loads(told)["researcher"]
        yield Hub(url, login["name"], own_token(url, login["name"], login["password"]), {"profile": profile})


def own_token(url: str, name: str, password: str) -> str:
    """An API token, got as a browser would."""
    with httpx.Client(base_url=url, follow_redirects=True, timeout=60) as browser:
        browser.get("/hub/login").raise_for_status()

        def xsrf() -> str:
            return next(cookie.value or "" for cookie in browser.cookies.jar if cookie.name == "_xsrf")

        browser.post("/hub/login", data={"username": name, "password": password, "_xsrf": xsrf()}).raise_for_status()
        answer = browser.post(f"/hub/api/users/{name}/tokens", headers={"X-XSRFToken": xsrf()}, json={})
        return str(answer.raise_for_status().json()["token"])


@contextmanager
def stock(folder: Path, chp: str) -> Iterator[Hub]:
    port, token, user = free_port(), os.urandom(16).hex(), "stock"
    url, homes = f"http://127.0.0.1:{port}", folder / "homes"
    homes.mkdir()
    args = ["--allow-root"] if os.geteuid() == 0 else []
    config = STOCK.format(port=port, hub=free_port(), homes=str(homes), args=args, token=token)
    if chp:
        config += CHP.format(command=[chp], api=free_port(), pid=str(folder / "proxy.pid"))
    else:
        config += TRAEFIK.format(api=free_port())
    (folder / "jupyterhub_config.py").write_text(config, encoding="utf-8")
    with running([sys.executable, "-m", "jupyterhub"], folder, url, "/hub/health"):
        hub = Hub(url, user, token, {})
        hub.client.post(f"/hub/api/users/{user}").raise_for_status()
        yield hub


# ---- the comparison ------------------------------------------------------------------------------------------------


def compare(pairs: int, chp: str, profile: str) -> dict[str, Any]:
    """Seconds of each start and their medians; `ratio` is the median over pairs of Berth to stock."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-bench-")))
        for name in ("ours", "stock"):
            (folder / name).mkdir()
        sides = {
            "berth": stack.enter_context(berth(folder / "ours", profile)),
            "stock": stack.enter_context(stock(folder / "stock", chp)),
        }
        took: dict[str, list[float]] = {"berth": [], "stock": []}
        for pair in range(pairs + 1):
            order = ("berth", "stock") if pair % 2 else ("stock", "berth")
            for name in order:
                seconds = sides[name].measure()
                if pair:
                    took[name].append(round(seconds, 3))
                print(f"{'warm-up' if not pair else f'pair {pair}'}: {name} {seconds:.2f} s", file=sys.stderr)
    return result(took, chp, profile)


def result(took: dict[str, list[float]], chp: str, profile: str) -> dict[str, Any]:
    ratios = [ours / theirs for ours, theirs in zip(took["berth"], took["stock"], strict=True)]
    return {
        "benchmark": "start",
        "unit": "seconds from the request to the first answer of the server through the proxy",
        "pairs": len(ratios),
        "berth": took["berth"],
        "stock": took["stock"],
        "berth_median": round(statistics.median(took["berth"]), 3),
        "stock_median": round(statistics.median(took["stock"]), 3),
        "ratio": round(statistics.median(ratios), 3),
        "target": 0.5,
        "profile": profile,
        "stock_is": {
            "spawner": "SimpleLocalProcessSpawner, jupyterhub-singleuser",
            "proxy": f"configurable-http-proxy {chp_version(chp)} (npm)"
            if chp
            else "jupyterhub-traefik-proxy, as it comes",
        },
        "versions": {name: version(name) for name in ("jupyterhub", "jupyterlab", "jupyter_server")},
        "python": sys.version.split()[0],
        "cpus": os.cpu_count(),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def chp_version(chp: str) -> str:
    done = subprocess.run([chp, "--version"], capture_output=True, text=True, check=False, env=environment())
    return done.stdout.strip() or "of unknown version"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument(
        "--chp", default=shutil.which("configurable-http-proxy") or "", help="npm's proxy, an executable"
    )
    parser.add_argument("--profile", default="gpu-1-8", help="Berth's profile that is started")
    args = parser.parse_args()
    found = compare(max(1, args.pairs), args.chp, args.profile)
    if args.json:
        print(json.dumps(found))
    else:
        print(f"Berth {found['berth_median']} s, stock {found['stock_median']} s, ratio {found['ratio']} (target 0.5)")
    return 0 if found["ratio"] <= found["target"] else 1


if __name__ == "__main__":
    sys.exit(main())
