"""The walls of the house as tables. Widen one only with the reason beside it."""

from __future__ import annotations

#: Who may import whom among our packages (itself is always allowed).
MAY_IMPORT: dict[str, frozenset[str]] = {
    "images": frozenset(),
    "quota": frozenset(),
    "spawner": frozenset({"quota", "images"}),
    "idle_culler": frozenset({"quota"}),
    "hub_config": frozenset({"images", "quota", "spawner", "idle_culler"}),
}

#: Pure files: no I/O, no clock, no environment, no logging; standard library and pure files of ours. The set
#: names what else one may import.
PURE: dict[str, frozenset[str]] = {
    "quota/units.py": frozenset(),
    "quota/leases.py": frozenset(),
    "quota/errors.py": frozenset(),
    "quota/transitions.py": frozenset(),
    "quota/entitlement.py": frozenset(),
    "quota/pricing.py": frozenset(),
    "quota/metering.py": frozenset(),
    "quota/ledger.py": frozenset(),
    "quota/jumps.py": frozenset(),
    "quota/findings.py": frozenset(),
    "quota/groups.py": frozenset(),
    "quota/vitals.py": frozenset(),
    "quota/lookalikes.py": frozenset({"confusable_homoglyphs"}),
    "quota/notices.py": frozenset(),
    "quota/routing.py": frozenset(),
    "quota/reported.py": frozenset(),
    "quota/leaving.py": frozenset(),
    "quota/said.py": frozenset(),
    "quota/wish.py": frozenset(),
    "quota/verdicts.py": frozenset(),
    "quota/told.py": frozenset(),
    "quota/i18n.py": frozenset(),  # reads the reader's language from a context variable: an argument of everything
    "quota/web/words.py": frozenset(),
    "quota/web/figures.py": frozenset(),
    "quota/web/daily.py": frozenset(),
    "quota/web/held.py": frozenset(),
    "quota/web/lasting.py": frozenset(),
    "quota/web/room.py": frozenset(),
    "quota/web/period.py": frozenset(),
    "images/catalog.py": frozenset(),
    "spawner/fleet.py": frozenset(),
    "spawner/health.py": frozenset(),
    "spawner/xid.py": frozenset(),
    "spawner/profiles.py": frozenset(),
    "spawner/rules.py": frozenset(),
    "spawner/placement.py": frozenset(),
    "spawner/sharing.py": frozenset(),
    "spawner/container.py": frozenset(),
    "spawner/box.py": frozenset(),
    "spawner/docker_spec.py": frozenset(),
    "spawner/docker_seen.py": frozenset(),
    "spawner/pulling.py": frozenset(),
    "spawner/lanes.py": frozenset(),
    "spawner/drift.py": frozenset(),
    "spawner/messages.py": frozenset(),
    "spawner/names.py": frozenset(),
    "spawner/gpu_use.py": frozenset(),
    "spawner/payers.py": frozenset(),
    "spawner/options.py": frozenset(),
    "idle_culler/signals.py": frozenset(),
    "idle_culler/decide.py": frozenset(),
    "idle_culler/evidence.py": frozenset(),
    "idle_culler/keepbusy.py": frozenset(),
    "idle_culler/policies.py": frozenset(),
    "hub_config/settings.py": frozenset({"pydantic", "pydantic_core"}),
    "hub_config/settings_auth.py": frozenset({"pydantic"}),
    "hub_config/settings_durations.py": frozenset({"pydantic"}),
    "hub_config/membership.py": frozenset(),
    "hub_config/password_rules.py": frozenset(),
    "hub_config/settings_extensions.py": frozenset({"pydantic"}),
    "hub_config/settings_groups.py": frozenset({"pydantic"}),
    "hub_config/settings_notices.py": frozenset({"pydantic"}),
    "hub_config/settings_save.py": frozenset({"pydantic"}),
    "hub_config/settings_schedule.py": frozenset({"pydantic"}),
    "hub_config/settings_idle.py": frozenset({"pydantic"}),
    "hub_config/settings_text.py": frozenset(),
    "hub_config/settings_docker.py": frozenset({"pydantic"}),
    "hub_config/roles.py": frozenset(),
    "hub_config/placeholders.py": frozenset(),
    "hub_config/log_events.py": frozenset(),
}

#: Seams: Protocols and the values they speak of.
SEAMS = ("quota/ports.py", "spawner/ports.py", "idle_culler/ports.py")

#: Modules of the standard library through which a file would touch the world; no pure file or seam imports them.
WORLDLY = frozenset(
    {
        "asyncio",
        "concurrent",
        "ctypes",
        "http",
        "importlib",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "random",
        "secrets",
        "select",
        "shutil",
        "signal",
        "socket",
        "sqlite3",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "urllib.request",
        "uuid",
    }
)

#: Calls by which a pure file would touch the world without an import of its own.
WORLDLY_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__", "breakpoint"})
WORLDLY_METHODS = frozenset(
    {"now", "utcnow", "today", "read_text", "read_bytes", "write_text", "write_bytes", "unlink"}
)

#: Which files may import what does not come with Python. Patterns as of `fnmatch`; `*` crosses folders.
THIRD_PARTY: dict[str, tuple[str, ...]] = {
    # The book and the bank in chapters; the pure rules beside them never see SQL.
    "sqlalchemy": (
        "quota/schema.py",
        "quota/schema_base.py",
        "quota/schema_stops.py",
        "quota/store.py",
        "quota/revisions.py",
        "quota/dump.py",  # rows as they are, of any revision
        "quota/records.py",
        "quota/book.py",
        "quota/book_reads.py",
        "quota/reserving.py",
        "quota/billing.py",
        "quota/bank.py",
        "quota/accounts.py",
        "quota/own_prices.py",
        "quota/account_views.py",
        "quota/postings.py",
        "quota/statement.py",
        "quota/audit.py",
        "quota/audit_ledger.py",
        "quota/audit_leases.py",
        "quota/jumping.py",
        "quota/rows.py",
        "quota/alerts.py",
        "quota/outbox.py",
        "quota/cards.py",
        "quota/wishes.py",
        "quota/schedules.py",
        "quota/appeals.py",
        "quota/inbox.py",
        "quota/facts.py",
        "quota/past.py",
        "quota/book_timing.py",  # listens to the engine
        "quota/answers.py",
        "quota/farewells.py",
        "quota/kit_reads.py",
        "quota/migrations/*",
        "hub_config/identities.py",  # a table in the Hub's database
        "hub_config/password_table.py",  # another
    ),
    "ldap3": ("hub_config/ldap_directory.py",),
    "nativeauthenticator": ("hub_config/auth_passwords.py", "hub_config/password_table.py"),
    "pamela": ("hub_config/pam_accounts.py",),
    "oauthenticator": ("hub_config/auth_provider.py",),
    "alembic": ("quota/revisions.py", "quota/migrations/*"),
    "pynvml": ("spawner/nvml.py",),
    "psutil": ("spawner/local_load.py", "hub_config/*"),
    "pydantic": (
        "hub_config/settings*.py",
        "hub_config/reference.py",  # says what the settings are
        "quota/api/*",  # REST: shapes, checks and document from one source
    ),
    "prometheus_client": (
        "quota/web/metrics.py",
        "quota/web/scrape.py",
        "spawner/metrics.py",
        "hub_config/reference_running.py",  # says what the metrics are
    ),
    "pythonjsonlogger": ("hub_config/logs.py",),
    "jinja2": ("quota/web/*", "hub_config/*", "spawner/form.py"),  # the form on the Hub's start page
    "pygal": ("quota/web/charts.py",),
    "babel": ("quota/catalogues.py",),
    "confusable_homoglyphs": ("quota/lookalikes.py",),
    "cryptography": ("quota/sealed.py",),
    "apprise": ("hub_config/deliver_chat.py",),
    "requests": ("quota/outgoing.py", "hub_config/deliver_chat.py", "spawner/docker_engine.py"),
    "urllib3": ("quota/outgoing.py",),
    "bcrypt": ("hub_config/*",),
    "jupyterhub": (
        "spawner/gpu_spawner.py",
        "spawner/refusals.py",
        "spawner/docker_spawner.py",
        "hub_config/*",
        "quota/web/*",
        "quota/api.py",
        "quota/api/*",
        "idle_culler/hub_api.py",
        "idle_culler/app.py",
        "images/lab/*",
    ),
    "docker": (
        "spawner/docker_engine.py",
        "spawner/docker_runtime.py",
        "spawner/docker_network.py",
        "spawner/docker_images.py",
        "spawner/docker_homes.py",
    ),
    "dockerspawner": ("spawner/docker_spawner.py",),
    "jupyterhub_traefik_proxy": ("hub_config/proxy.py",),
    "tornado": (
        "spawner/gpu_spawner.py",
        "hub_config/*",
        "quota/web/*",
        "quota/api.py",
        "quota/api/*",
        "idle_culler/hub_api.py",
        "idle_culler/app.py",
        "images/lab/*",
    ),
    "traitlets": ("spawner/gpu_spawner.py", "spawner/docker_spawner.py", "hub_config/*", "images/lab/*"),
    "aiohttp": ("spawner/gpu_spawner.py", "hub_config/*", "quota/web/*", "idle_culler/hub_api.py", "images/lab/*"),
    "jupyter_server": ("images/lab/*",),
    "jupyter_client": ("images/lab/*",),
    "jupyterlab": ("images/lab/*",),
    "zmq": ("images/lab/*",),
    "cloudpickle": ("images/lab/berth_lab/serialize.py",),
    "nbformat": ("idle_culler/notebook.py",),
    "setuptools": ("images/lab/setup.py",),
}
