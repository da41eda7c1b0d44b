"""`berth test`: brings what the tests need, then lints, types, documents and the whole suite. What CI runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hub_config.screen import complain, say

CHECKOUT = Path(__file__).resolve().parent.parent
DEBIAN_PACKAGES = {
    "chromium": ("chromium", "the browser tests"),
    "cc": ("gcc libc6-dev", "the NVML shim"),
    "initdb": ("postgresql", "the tests on PostgreSQL"),
    "slapd": ("slapd", "the tests of log-in by a directory"),
    "dockerd": ("docker.io", "the tests on a Docker Engine"),
    "debootstrap": ("debootstrap", "the images of the tests on a Docker Engine"),
    "iptables": ("iptables", "the network of the tests on a Docker Engine"),
}
#: Folders of tests that are run side by side; a test holds that none is left out. Those that start whole sites wait
#: more than they compute, so the others fill the time.
QUEUES = {
    "sites": ("tests/integration",),
    "browser": ("tests/browser",),
    "docker": ("tests/docker_engine",),
    "in-process": ("tests/unit", "tests/contract", "tests/golden", "tests/crash", "tests/architecture", "tests/device"),
}


def run(*, deep: bool, extra: Sequence[str]) -> int:
    """0 when all is well, else 1. Raises `FileNotFoundError` outside a checkout."""
    if not (CHECKOUT / "tests").is_dir():
        raise FileNotFoundError("`berth test` runs in a checkout of Berth: there is no tests folder here.")
    bring_packages()
    python = sys.executable
    checks = (
        []
        if extra
        else [
            (python, "-m", "ruff", "check", "."),
            (python, "-m", "ruff", "format", "--check", "."),
            (python, "-m", "mypy"),
            # The documents: no warning passes.
            (python, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "docs", "build/docs"),
        ]
    )
    failed = [check for check in checks if subprocess.run(check, cwd=CHECKOUT).returncode]
    suite = (python, "-m", "pytest", *(["--deep"] if deep else []), *extra)
    tests = subprocess.run(suite, cwd=CHECKOUT).returncode if extra else run_side_by_side(suite)
    for check in failed:
        complain(f"failed: {' '.join(check[2:])}")
    return 1 if failed or tests else 0


def run_side_by_side(suite: Sequence[str]) -> int:
    """The suite in a process for each of `QUEUES`. The first one's output is shown as it comes, that of the others is
    kept and shown in the end. 0 when all passed."""
    results = CHECKOUT / "test-results"
    results.mkdir(exist_ok=True)
    first, *others = QUEUES
    says = " and ".join(others)
    say(f"Tests in {len(QUEUES)} processes; what {says} say follows at the end (meanwhile: {results})")
    with contextlib.ExitStack() as stack:
        beside = []
        for name in others:
            out = stack.enter_context((results / f"{name}.log").open("wb"))
            command = [*suite, *QUEUES[name]]
            beside.append(subprocess.Popen(command, cwd=CHECKOUT, stdout=out, stderr=subprocess.STDOUT))
            stack.callback(beside[-1].terminate)
        codes = [subprocess.run([*suite, *QUEUES[first]], cwd=CHECKOUT).returncode]
        codes += [process.wait() for process in beside]
    for name in others:
        print((results / f"{name}.log").read_text(encoding="utf-8", errors="replace"), flush=True)
    return int(any(codes))


def bring_packages() -> None:
    """Install the Debian packages that are missing when run as root; else say which tests will be skipped."""
    missing = {name: package for name, package in DEBIAN_PACKAGES.items() if not _is_here(name)}
    if not missing:
        return
    packages = [part for package, _ in missing.values() for part in package.split()]
    if os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"Installing {', '.join(packages)} for the tests …")
        # Run level 1: the tests start what they need themselves, on ports of their own.
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *packages]):
            done = subprocess.run(command, env=env, stdout=subprocess.DEVNULL)
            if done.returncode:
                complain(f"`{' '.join(command)}` failed; tests that need it are skipped")
                return
    else:
        for name, (package, what) in missing.items():
            say(f"{name} is not here, so {what} are skipped. On Debian or Ubuntu: sudo apt install {package}")


def _is_here(name: str) -> bool:
    """Whether the program is on PATH, or where Debian keeps daemons and those of PostgreSQL."""
    path = f"{os.environ.get('PATH', os.defpath)}{os.pathsep}/usr/sbin"
    return shutil.which(name, path=path) is not None or any(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
