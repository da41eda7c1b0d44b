"""A PostgreSQL cluster of the tests' own: made for one run, reached by a Unix socket, gone with the run."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg

from quota.store import Store
from tests.harness.waiting import until

PASSWORD = "correct horse / battery: staple@%"
_PORT = "5432"  # the name of the socket, not a port of the machine
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # no power cut is played here
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "120",
    "deadlock_timeout": "200ms",
}


def binaries() -> Path | None:
    """Where `initdb` and `postgres` are: Debian keeps them apart from PATH."""
    on_path = shutil.which("postgres")
    if on_path and shutil.which("initdb"):
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


def missing() -> str:
    """Why there can be no cluster; empty when there can."""
    if binaries() is None:
        return "PostgreSQL is not installed"
    if os.geteuid() == 0 and _user() is None:
        return "PostgreSQL does not run as root and there is no user postgres"
    return ""


def _user() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return None


def _dies_with_us() -> None:
    ctypes.CDLL(None).prctl(1, int(signal.SIGQUIT), 0, 0, 0)  # PR_SET_PDEATHSIG


class Cluster:
    """One server. `template` is an empty migrated book; `create` copies it. Role `keeper` needs `PASSWORD`, all
    others none."""

    def __init__(self, *, durable: bool = False) -> None:
        """`durable`: written to the disk as a server in real use does."""
        self._settings = {name: value for name, value in _SETTINGS.items() if not durable or value != "off"}
        found = binaries()
        assert found is not None, missing()
        self._bin = found
        self.folder = Path(tempfile.mkdtemp(prefix="berth-pg-"))
        self._as: dict[str, object] = {}
        if os.geteuid() == 0:
            user = _user()
            assert user is not None, missing()
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = count(1)
        self._template = False

    def __enter__(self) -> Cluster:
        self._run("initdb", "-D", str(self._data), "-U", "postgres", "--auth=trust", "--no-sync", *_LOCALE)
        rules = self._data / "pg_hba.conf"
        rules.write_text("local all keeper scram-sha-256\n" + rules.read_text())
        self.start()
        with self.connect() as admin:
            admin.execute(psycopg.sql.SQL("CREATE ROLE keeper LOGIN PASSWORD {}").format(PASSWORD))
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _run(self, name: str, *words: str) -> None:
        done = subprocess.run(
            [str(self._bin / name), *words], capture_output=True, text=True, cwd=self.folder, **self._as
        )  # type: ignore[call-overload]
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """Start the server and wait until it answers; after a kill, until what it left has gone."""
        until(self._try_to_start, 60, "PostgreSQL answers")

    def _try_to_start(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            words = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
            with (self.folder / "log").open("ab") as log:
                self._process = subprocess.Popen(  # type: ignore[call-overload]
                    [str(self._bin / "postgres"), "-D", str(self._data), "-k", str(self.folder), "-p", _PORT, *words],
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=_dies_with_us,
                    **self._as,
                )
        with contextlib.suppress(psycopg.OperationalError), self.connect():
            return True
        return False

    def stop(self) -> None:
        """End the server at once."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(30)
            self._process = None

    def kill(self) -> None:
        """kill -9, as a crash would."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(30)
        self._process = None

    def connect(self, database: str = "postgres") -> psycopg.Connection[tuple[object, ...]]:
        """A connection of the superuser, in autocommit."""
        return psycopg.connect(
            host=str(self.folder), port=_PORT, user="postgres", dbname=database, autocommit=True, connect_timeout=5
        )

    def url(self, database: str, user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}&port={_PORT}"

    def empty(self, owner: str = "postgres") -> str:
        """The name of a new database with nothing in it."""
        return self._create("template0", owner)

    def migrated(self) -> str:
        """The name of a new database with an empty migrated book."""
        if not self._template:
            with self.connect() as admin:
                admin.execute("CREATE DATABASE migrated TEMPLATE template0 STRATEGY file_copy")
            with Store(self.url("migrated")) as store:
                store.migrate()
            self._template = True
        return self._create("migrated", "postgres")

    def _create(self, template: str, owner: str) -> str:
        name = f"book{next(self._numbers)}"
        with self.connect() as admin:
            admin.execute(f"CREATE DATABASE {name} OWNER {owner} TEMPLATE {template} STRATEGY file_copy".encode())
        return name

    def drop(self, database: str) -> None:
        with self.connect() as admin:
            admin.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)".encode())

    def deadlocks(self, database: str) -> int:
        """How often the server has had to end a transaction of this database for the sake of another."""
        with self.connect() as admin:
            row = admin.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = %s", [database]).fetchone()
        assert row is not None
        return int(str(row[0]))


#: Not the C locale: names then sort as on a server in real use.
_LOCALE = ("--encoding=UTF8", "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US")


@contextmanager
def database(cluster: Cluster, *, migrated: bool = True) -> Iterator[str]:
    """A database for the length of a block; its name."""
    name = cluster.migrated() if migrated else cluster.empty()
    try:
        yield name
    finally:
        cluster.drop(name)
