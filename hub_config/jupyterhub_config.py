"""JupyterHub's configuration file: reads the data folder named by BERTH_DATA and applies it.

Small functions turn values into traitlets; an `extra_config` file of `berth.toml` is read last and may override any.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from hub_config import auth_presets, compose, extra, guards, keep_on_home, logs, managed, proxy, roles, starts
from hub_config.book_trouble import trouble
from hub_config.compose import Parts
from hub_config.datafolder import BACKEND, BOOK_PASSWORD, MAIL_SECRET
from hub_config.hub_words import HubWords
from hub_config.ports import Ports
from hub_config.site_pages import BerthPages, hub_folders
from quota import catalogues
from quota.errors import BerthError, Refused
from quota.web.group_views import groups_for
from quota.web.home import home_view
from quota.web.parts import Viewer
from quota.web.render import asset_hash
from spawner.gpu_spawner import GpuSpawner, LocalGpuSpawner

HERE = Path(__file__).parent


def configure(c: Any, made: Parts, ports: Ports, host: str, boot: str) -> None:
    """Everything Berth asks of JupyterHub."""
    configure_hub(c, made, ports, host)
    configure_proxy(c, made, ports)
    auth_presets.configure(c, made)
    configure_spawner(c, made, ports, boot)
    configure_services(c, made, ports)
    configure_pages(c, made)
    keep_on_home.configure(c, made)
    guards.guard_pages(c)


def configure_hub(c: Any, made: Parts, ports: Ports, host: str) -> None:
    hub = made.data.hub
    address = f"[{host}]" if ":" in host else host  # ::1
    c.JupyterHub.bind_url = f"http://{address}:{ports.public}"
    c.JupyterHub.hub_bind_url = f"http://{made.hosting.address}:{ports.hub}"
    c.JupyterHub.db_url = f"sqlite:///{hub / 'jupyterhub.sqlite'}"
    c.JupyterHub.upgrade_db = True
    c.JupyterHub.cookie_secret_file = str(made.data.secrets / "jupyterhub_cookie_secret")
    c.JupyterHub.cleanup_servers = False  # a restarted hub finds its users' servers running
    c.JupyterHub.allow_named_servers = True
    c.JupyterHub.named_server_limit_per_user = made.settings.hub.named_servers
    c.JupyterHub.default_url = landing
    c.JupyterHub.custom_scopes = roles.CUSTOM_SCOPES
    c.JupyterHub.extra_user_scopes = roles.USER_SCOPES
    c.JupyterHub.load_roles = roles.ROLES
    c.PeriodicMetricsCollector.event_loop_interval_resolution = 1.0  # by default the Hub wakes 20 times a second for it


def landing(handler: Any) -> str:
    """Where a log-in leads: to the server that runs ("" is the Hub's own way), else to the home page, which shows
    newcomers the first steps and others why the last server stopped. The Hub's way would be the form of a start."""
    user = handler.current_user
    return "" if user and user.spawner.active else f"{handler.hub.base_url}home"


def configure_proxy(c: Any, made: Parts, ports: Ports) -> None:
    hub = made.data.hub
    c.JupyterHub.proxy_class = proxy.BerthProxy
    c.BerthProxy.traefik_api_url = f"http://127.0.0.1:{ports.proxy_api}"
    c.BerthProxy.traefik_api_username = "berth"
    c.BerthProxy.traefik_api_password = made.data.secret("proxy")
    c.BerthProxy.static_config_file = str(hub / "traefik.toml")
    c.BerthProxy.dynamic_config_file = str(hub / "rules.toml")
    c.BerthProxy.traefik_log_level = "WARN"
    c.BerthProxy.pid_file = str(made.data.pids / "proxy.pid")
    # Whole uploads must fit into it; traefik's own 60 s cuts a slow one off.
    c.BerthProxy.extra_static_config = {
        "entryPoints": {
            "http": {
                "transport": {"respondingTimeouts": {"readTimeout": "3600s"}},
                "http": {"aliasHeadersStrategy": "delete"},  # X_Forwarded_For is not X-Forwarded-For
            },
            "auth_api": {"http": {"aliasHeadersStrategy": "delete"}},
        },
        "global": {"checkNewVersion": False, "sendAnonymousUsage": False},
    }


def configure_spawner(c: Any, made: Parts, ports: Ports, boot: str) -> None:
    wiring = compose.spawner_wiring(made, boot, f"http://{made.hosting.address}:{ports.berth}/services/berth")
    if made.hosting.docker:
        c.HouseRules.deleted = made.hosting.retire_home(made.rows, made.clock)
    starts.install()  # who comes second by a moment is shown the first start, not a fault
    c.JupyterHub.spawner_class = spawner_class(made)
    c.GpuSpawner.wire = lambda: wiring  # a function, since traitlets copies every other value deeply
    patience = made.settings.hub.start_timeout + made.way_out.graces.by_hand  # of an earlier run that still saves
    if made.hosting.docker:
        patience += made.settings.docker.pull_timeout  # the image may have to come first
    c.Spawner.start_timeout = int(patience.total_seconds()) + 30  # ours comes first, with words
    c.Spawner.http_timeout = 30
    c.Spawner.server_token_scopes = ["users:activity!user", "access:servers!server", *roles.SERVER_SCOPES]


def spawner_class(made: Parts) -> type[GpuSpawner]:
    """What the backend of `berth.toml` starts servers with."""
    if not made.hosting.docker:
        return LocalGpuSpawner
    from spawner.docker_spawner import DockerGpuSpawner

    return DockerGpuSpawner


def configure_services(c: Any, made: Parts, ports: Ports) -> None:
    managed.install()  # a killed service is back within seconds, not within half a minute
    command = [sys.executable, "-m", "hub_config", "service"]
    environment = {
        "BERTH_DATA": str(made.data.root),
        "BERTH_HUB_PID": str(os.getpid()),
        "PATH": os.environ.get("PATH", ""),
        **guards.SERVICE_ENVIRONMENT,
        **{name: value for name in (BACKEND, BOOK_PASSWORD, MAIL_SECRET) if (value := os.environ.get(name))},
    }
    c.JupyterHub.services = [
        {
            "name": "berth",
            "url": f"http://{made.hosting.address}:{ports.berth}",
            "command": [*command, "berth"],
            "environment": environment,
            "oauth_no_confirm": True,  # part of the platform, not somebody's application
            "display": False,  # the navigation bar has its pages
        },
        {"name": "idle-culler", "command": [*command, "idle-culler"], "environment": environment},
        {"name": "prometheus", "api_token": made.data.secret("metrics_token"), "display": False},  # no process of ours
    ]


def configure_pages(c: Any, made: Parts) -> None:
    async def berth_home(user: Any) -> Any:
        try:
            return await asyncio.to_thread(
                home_view,
                made.book,
                made.bank,
                made.rows,
                user.name,
                made.clock.now(),
                most_starts=made.settings.schedule.most,
                keep_most=made.settings.idle.keep_most,
            )
        except Refused:  # the book does not answer: the page says so and still starts and stops servers
            return None

    groups = compose.groups_of(made.settings)

    def has_groups(user: Any) -> bool:
        """Whether the menu leads to a group's page, as on the pages of the service."""
        if user is None:
            return False
        mine = frozenset(group.name for group in user.groups)
        return bool(groups_for(groups, Viewer(user.name, bool(user.admin), mine)))

    c.JupyterHub.template_paths = hub_folders(compose.templates_of(made))
    c.JupyterHub.jinja_environment_options = {"extensions": [HubWords, BerthPages]}
    # The Hub calls what is callable for every page; only the home page asks, in its template, for what this returns.
    c.JupyterHub.template_vars = {
        "berth_home": lambda _user: berth_home,
        "berth_groups": has_groups,
        "berth_site": made.settings.site.name,
        "berth_auth": made.settings.auth.kind,
        "berth_style": asset_hash("berth.css"),
        "berth_language": asset_hash("language.js"),
    }


def load_extra(made: Parts, load_subconfig: Any) -> None:
    """The site's own Python file, relative to `berth.toml`."""
    if not made.settings.hub.extra_config:
        return
    path = str(made.data.root / made.settings.hub.extra_config)
    try:
        load_subconfig(path)
    except (Exception, SystemExit) as error:
        sys.exit(f"berth: {path}: {extra.words_of(error, path)}")


def run(c: Any, load_subconfig: Any) -> None:
    guards.private_umask()
    made = compose.parts(Path(os.environ["BERTH_DATA"]))
    try:
        made.store.check()
    except BerthError as error:
        sys.exit(f"berth: {trouble(error) if isinstance(error, Refused) else error}")
    boot = compose.new_boot("hub")
    compose.keep_beating(made.rows, boot, "hub", made.host)
    logs.set_up_hub(c, made.data.logs, made.settings)
    catalogues.load(made.settings.site.language)
    configure(c, made, Ports.load(made.data), os.environ.get("BERTH_HOST", "127.0.0.1"), boot)
    load_extra(made, load_subconfig)
    wrong = extra.fault(c)
    if wrong:
        sys.exit(f"berth: {made.settings.hub.extra_config}: {wrong}")


if "get_config" in globals():  # JupyterHub executes this file with these two names in it
    run(get_config(), load_subconfig)  # type: ignore[name-defined]  # noqa: F821
