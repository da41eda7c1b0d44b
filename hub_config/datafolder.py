"""The data folder: where everything of one deployment lives, and the secrets in it (files 0600, folders 0700)."""

from __future__ import annotations

import json
import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

from hub_config.settings import COMMENTED, Settings, SettingsError, parse

#: The variable of the environment with the password of the book's database.
BOOK_PASSWORD = "BERTH_BOOK_PASSWORD"
#: The variable of the environment with the backend, which goes before `backend.kind`; `berth up --backend` sets it.
BACKEND = "BERTH_BACKEND"
#: The variable of the environment with Berth's secret at the log-in provider.
AUTH_SECRET = "BERTH_AUTH_SECRET"
#: The variable of the environment with the password at the mail server.
MAIL_SECRET = "BERTH_MAIL_SECRET"


@dataclass(frozen=True, slots=True)
class DataFolder:
    """Paths below one data folder. Two deployments on a machine differ in nothing but this path and their port."""

    root: Path

    @property
    def settings_file(self) -> Path:
        return self.root / "berth.toml"

    @property
    def book_file(self) -> Path:
        """The book, unless `[book]` of `berth.toml` names another database."""
        return self.root / "book.sqlite"

    def book_url(self, settings: Settings) -> str:
        """Where the book is, without a password."""
        return settings.book.url or f"sqlite:///{self.book_file}"

    def book_password(self, settings: Settings) -> str | None:
        """Its password: BERTH_BOOK_PASSWORD, else the file that `berth.toml` names (relative to this folder). None
        leaves it to PostgreSQL's own ways (~/.pgpass, a socket that asks nothing). Raises `SettingsError`."""
        return self._secret_for(
            BOOK_PASSWORD, "book.password_file", settings.book.password_file, "the password of the database"
        )

    def auth_secret(self, settings: Settings) -> str:
        """Berth's secret at the log-in provider, or the password with which it searches a directory:
        BERTH_AUTH_SECRET, else the file that `berth.toml` names; "" for none. Raises `SettingsError`."""
        return self._secret_for(AUTH_SECRET, "auth.secret_file", settings.auth.secret_file, "Berth's secret") or ""

    def mail_password(self, settings: Settings) -> str:
        """The password at the mail server: BERTH_MAIL_SECRET, else the file; "" for none. Raises `SettingsError`."""
        return self._secret_for(MAIL_SECRET, "mail.password_file", settings.mail.password_file, "the password") or ""

    def admin_chat(self, settings: Settings) -> str:
        """The webhook of the administrators' chat; "" for none. Raises `SettingsError`."""
        return (self._secret_for("", "chat.admin_file", settings.chat.admin_file, "the webhook") or "").strip()

    def _secret_for(self, variable: str, key: str, name: str, what: str) -> str | None:
        given = os.environ.get(variable) if variable else None
        if given or not name:
            return given or None
        path = self.root / name
        try:
            return path.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise SettingsError(
                f"{self.settings_file}: {key}: {path} cannot be read: {why}; "
                f"write {what} into it (chmod 600)" + (f", or give it as {variable}" if variable else "")
            ) from None

    @property
    def hub(self) -> Path:
        return self.root / "hub"

    @property
    def hub_database(self) -> Path:
        return self.hub / "jupyterhub.sqlite"

    @property
    def provider_file(self) -> Path:
        """What an OpenID provider last said about itself; `berth up` asks it at each start."""
        return self.hub / "provider.json"

    @property
    def unfinished_restore(self) -> Path:
        """There while a restore is putting things into place; `berth up` does not start on half of one."""
        return self.root / "restore-unfinished"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def homes(self) -> Path:
        return self.root / "homes"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets"

    @property
    def pids(self) -> Path:
        return self.root / "pids"

    @property
    def lock_file(self) -> Path:
        return self.root / "up.lock"

    @property
    def last_backup(self) -> Path:
        """When `berth backup` last made one."""
        return self.root / "last-backup.json"

    @property
    def up_file(self) -> Path:
        """What the running `berth up` wrote about itself: pid, url, backend."""
        return self.root / "up.json"

    def make(self) -> None:
        """Create what is missing; private, since everything below may hold what users wrote."""
        for folder in (self.root, self.hub, self.runs, self.homes, self.logs, self.secrets, self.pids):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.settings_file.exists():
            self.settings_file.write_text(COMMENTED, encoding="utf-8")

    def settings(self) -> Settings:
        """The settings of `berth.toml`. Raises `SettingsError`, one line."""
        try:
            text = self.settings_file.read_text(encoding="utf-8")
        except FileNotFoundError:
            text = ""
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{self.settings_file}: cannot be read: {error}") from None
        return parse(text, str(self.settings_file), backend=os.environ.get(BACKEND, ""))

    def secret(self, name: str, nbytes: int = 32) -> str:
        """A random hex secret, made once and kept."""
        path = self.secrets / name
        if not path.exists():
            write_private(path, secrets.token_hex(nbytes) + "\n")
        return path.read_text(encoding="ascii").strip()

    def host(self) -> str:
        """This machine's name as it was when the folder was made: leases name their host, and a renamed machine must
        not lose sight of its own."""
        path = self.root / "host"
        if not path.exists():
            write_private(path, socket.gethostname() + "\n")
        return path.read_text(encoding="utf-8").strip()

    def passwords(self) -> dict[str, dict[str, str]]:
        """Log-ins of the trial: {"admin": {"name", "password"}, "researcher": {…}}, made once and kept in a 0600 file.

        The Hub's shared-password authenticator wants 32 characters for admins and 8 for users.
        """
        path = self.secrets / "passwords.json"
        if not path.exists():
            logins = {
                "admin": {"name": "admin", "password": secrets.token_urlsafe(27)},
                "researcher": {"name": "researcher", "password": secrets.token_urlsafe(12)},
            }
            write_private(path, json.dumps(logins, indent=2) + "\n")
        found: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
        return found


def write_private(path: Path, text: str) -> None:
    """Write whole or not at all, readable by nobody else from the first byte on."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
