"""The images of the tests, made on this machine out of packages: Debian by debootstrap, and JupyterLab with the kit
by `images/base/Dockerfile`. Both are kept in the Engine's folder and made anew when what goes into them changes."""

from __future__ import annotations

import hashlib
import importlib.metadata
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import docker.errors

from tests.harness import netns
from tests.harness.engine import CHECKOUT, Engine

BASE, LAB = "berth-test-base:1", "berth-test-lab:1"
_RELEASE, _PYTHON = "bookworm", "3.11"
#: What images/base/Dockerfile wants of Debian, and `ip` to look around.
_PACKAGES = ("ca-certificates", "python3", "python3-venv", "git", "less", "procps", "iproute2")
_SOURCES = ("images/base", "images/lab", "images/settings")
_WANTED = ("jupyterlab", "jupyterhub", "ipykernel")
_LABEL = "berth.test.content"


def base(engine: Engine) -> str:
    """The tag of a small Debian with Python; made when it is not there."""
    content = _digest("\n".join((_RELEASE, *_PACKAGES)).encode(), Path(__file__).read_bytes())
    if not _is_there(engine, BASE, content):
        root = engine.folder / "root"
        archive = engine.folder / "root.tar"
        _remove(root)
        with engine.apart.outside():
            _debootstrap(root)
        netns.run("tar", "--numeric-owner", "-C", str(root), "-cf", str(archive), ".")
        repository, tag = BASE.split(":")
        changes = [f"LABEL {_LABEL}={content}", 'CMD ["/bin/sh"]']
        with engine.connected() as client:
            client.api.import_image_from_file(str(archive), repository=repository, tag=tag, changes=changes)
        archive.unlink()
        _remove(root)
    return BASE


def lab(engine: Engine) -> str:
    """The tag of an image with JupyterLab, the single-user server and the kit, the first two in this environment's
    versions; made when it is not there."""
    base(engine)
    sources = [path for folder in _SOURCES for path in sorted((CHECKOUT / folder).rglob("*")) if _is_source(path)]
    wanted = [f"{name}=={importlib.metadata.version(name)}" for name in _WANTED]
    content = _digest(Path(__file__).read_bytes(), "\n".join(wanted).encode(), *map(_named, sources))
    if not _is_there(engine, LAB, content):
        context = engine.folder / "context"
        _remove(context)
        for source in sources:
            copy = context / source.relative_to(CHECKOUT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)
        kit = tomllib.loads((context / "images/lab/pyproject.toml").read_text(encoding="utf-8"))
        with engine.apart.outside():
            _wheels(context / "wheels", [*wanted, *kit["build-system"]["requires"], *kit["project"]["dependencies"]])
        _build(engine, context, content)
        _remove(context)
    return LAB


def _build(engine: Engine, context: Path, content: str) -> None:
    """By the command line, since only it speaks to BuildKit; without a network, as all it needs is in the context."""
    cli = Path("/usr/bin/docker") if Path("/usr/bin/docker").exists() else "docker"  # Debian's: BuildKit is part of it
    recipe = str(context / "images" / "base" / "Dockerfile")
    command = [str(cli), "--host", engine.url, "build", "--network", "none", "--tag", LAB, "--file", recipe]
    command += ["--label", f"{_LABEL}={content}", "--build-arg", f"BASE={BASE}", "--build-arg", "PIP_NO_INDEX=1"]
    env = {**netns.with_daemons(), "DOCKER_BUILDKIT": "1", "BUILDKIT_PROGRESS": "plain"}
    done = subprocess.run([*command, str(context)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"the image was not built:\n{(done.stdout + done.stderr)[-4000:]}"


def _is_there(engine: Engine, tag: str, content: str) -> bool:
    with engine.connected() as client:
        try:
            return bool(client.images.get(tag).labels.get(_LABEL) == content)
        except docker.errors.ImageNotFound:
            return False


def _debootstrap(root: Path) -> None:
    """Debian's own release into `root`, from the mirror that this machine's apt uses."""
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(_PACKAGES)}", _RELEASE, str(root)]
    done = subprocess.run([*command, *_mirror()], env=netns.with_daemons(), capture_output=True, text=True)
    assert done.returncode == 0, f"debootstrap failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    for leftover in (root / "var/cache/apt/archives").glob("*.deb"):
        leftover.unlink()


def _mirror() -> list[str]:
    """The address from which apt has this release; none where it has another, and debootstrap knows its own."""
    which = ["Created-By: Packages", "Origin: Debian", f"Codename: {_RELEASE}"]
    command = ["apt-get", "indextargets", "--format", "$(SITE)", *which]
    done = subprocess.run(command, capture_output=True, text=True)
    sites = [line.strip().rstrip("/") for line in done.stdout.splitlines() if line.strip()]
    return sites[:1]


def _wheels(folder: Path, wanted: list[str]) -> None:
    """What the image installs and what builds the kit, for its Python and not for this one, fetched with this machine's
    settings of pip."""
    pip = [sys.executable, "-m", "pip", "--quiet", "download", "--only-binary=:all:", "--python-version", _PYTHON]
    netns.run(*pip, "--implementation", "cp", "--dest", str(folder), *wanted)


def _is_source(path: Path) -> bool:
    passing = {"node_modules", "__pycache__", "build", "lib", "dist"}
    return path.is_file() and not passing & set(path.parts[len(CHECKOUT.parts) :]) and ".egg-info" not in str(path)


def _named(path: Path) -> bytes:
    return f"{path.relative_to(CHECKOUT)}\0".encode() + path.read_bytes()


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:32]


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
