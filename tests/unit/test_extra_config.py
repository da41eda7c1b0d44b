"""What a site's `extra_config` may set, and what of it ends the start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from hub_config import extra, jupyterhub_config
from hub_config.compose import Parts
from hub_config.datafolder import DataFolder
from hub_config.ports import Ports
from hub_config.settings import parse
from spawner.gpu_spawner import LocalGpuSpawner


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    data = DataFolder(tmp_path_factory.mktemp("extra") / "data")
    data.make()
    return Parts(data, parse('[hub]\nextra_config = "extra.py"\n'))


@pytest.fixture
def config(made: Parts) -> Config:
    """Berth's own configuration of the Hub."""
    c = Config()
    jupyterhub_config.configure(c, made, Ports(8000, 8081, 8082, 8083), "127.0.0.1", "hub-0")
    return c


class Mine(LocalGpuSpawner):
    """A site's own subclass."""


def own_service(c: Any) -> None:
    c.JupyterHub.services.append({"name": "mine", "url": "http://127.0.0.1:9"})
    c.JupyterHub.load_roles.append({"name": "more", "scopes": ["self"]})
    c.JupyterHub.template_vars.update({"announcement": "Friday"})
    c.JupyterHub.extra_handlers.append((r"/mine", object))


def own_settings(c: Any) -> None:
    c.JupyterHub.spawner_class = Mine
    c.JupyterHub.active_server_limit = 20
    c.Spawner.environment = {"A": "b"}
    c.Spawner.stop_grace = 3.0  # a subclass's setting may stand under its parent's name
    c.Mine.args = ["--debug"]
    c.Authenticator.blocked_users = {"mallory"}
    c.Somebody.other = 1


@pytest.mark.parametrize("change", [lambda c: None, own_service, own_settings])
def test_what_a_site_may_set(config: Config, change: Callable[[Any], None]) -> None:
    change(config)
    assert extra.fault(config) is None


def lost_services(c: Any) -> None:
    c.JupyterHub.services = [{"name": "mine", "url": "http://127.0.0.1:9"}]


def lost_variables(c: Any) -> None:
    c.JupyterHub.template_vars = {"announcement": "Friday"}


def lost_handlers(c: Any) -> None:
    c.JupyterHub.extra_handlers = [(r"/mine", object)]


def other_spawner(c: Any) -> None:
    c.JupyterHub.spawner_class = "simple"


def typo(c: Any) -> None:
    c.JupyterHub.activ_server_limit = 20


def typo_of_ours(c: Any) -> None:
    c.GpuSpawner.stop_grcae = 3


def unheard_of(c: Any) -> None:
    c.Spawner.zzz = 1


def placeholder(c: Any) -> None:
    c.Spawner.notebook_dir = "/data/{user}"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lost_services, "c.JupyterHub.services has lost 'berth'; add yours with c.JupyterHub.services.append(…)"),
        (lost_variables, "c.JupyterHub.template_vars has lost 'berth_home'; add yours with"),
        (
            lost_handlers,
            "c.JupyterHub.extra_handlers has lost Berth's own; add yours with c.JupyterHub.extra_handlers.",
        ),
        (other_spawner, "c.JupyterHub.spawner_class = SimpleLocalProcessSpawner: servers would hold no lease"),
        (typo, "c.JupyterHub.activ_server_limit: JupyterHub has no such setting; did you mean active_server_limit?"),
        (typo_of_ours, "c.GpuSpawner.stop_grcae: GpuSpawner has no such setting; did you mean stop_grace?"),
        (unheard_of, "c.Spawner.zzz: Spawner has no such setting; take it out"),
        (placeholder, "c.Spawner.notebook_dir = '/data/{user}': nothing is put in for {user}; known are"),
    ],
)
def test_what_ends_the_start(config: Config, change: Callable[[Any], None], says: str) -> None:
    change(config)
    said = extra.fault(config)
    assert said is not None and said.startswith(says) and "\n" not in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\nc.JupyterHub.y = 1 / 0\n", "line 2: ZeroDivisionError: division by zero; correct it"),
        ("def (:\n", "line 1: SyntaxError: "),
        ("import sys\nsys.exit('no')\n", "line 2: SystemExit: no; correct it"),
    ],
)
def test_a_file_that_fails_is_one_line(made: Parts, text: str, says: str) -> None:
    path = made.data.root / "extra.py"
    path.write_text(text)

    def load_subconfig(name: str) -> None:
        exec(compile(Path(name).read_text(), name, "exec"), {"c": Config()})

    with pytest.raises(SystemExit) as ended:
        jupyterhub_config.load_extra(made, load_subconfig)
    assert str(ended.value).startswith(f"berth: {path}: {says}") and "\n" not in str(ended.value)
