"""A directory asked by LDAP: who has a name, whose password it is, which groups somebody is in. Never in the clear but
within this machine: TLS from the first byte (ldaps), or before anything else is said (ldap)."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import ldap3
from ldap3.core.exceptions import LDAPException, LDAPInvalidDnError
from ldap3.utils.conv import escape_filter_chars
from ldap3.utils.dn import parse_dn

from hub_config.auth_directory import Account, Silent
from hub_config.datafolder import AUTH_SECRET, DataFolder
from hub_config.settings import Settings, SettingsError
from hub_config.settings_auth import AuthTable

_CONNECT_SECONDS: Final = 5
_ANSWER_SECONDS: Final = 10
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_PORTS: Final = {"ldaps": 636, "ldap": 389}
#: What stays when an entry is renamed, and is never given again: OpenLDAP and most others, Active Directory, 389.
_IDS: Final = ("entryUUID", "objectGUID", "nsUniqueId")
#: A bind that was refused for what it said: nothing to log in with, wrong, not for this account, locked.
_WRONG: Final = (19, 32, 48, 49, 50, 53)
_FINE, _NOTHING, _MORE = 0, 32, 4  # success, noSuchObject, sizeLimitExceeded

Values = dict[str, list[bytes]]


@dataclass(frozen=True, slots=True)
class Directory:
    """`[auth]` of a site, with the password of `bind_dn`. A `Source`."""

    table: AuthTable
    secret: str = ""

    def check(self, name: str, password: str) -> Account | None:
        """Find the entry by the search account, then try its DN with the password."""
        with self._search() as search:
            entry = self._entry(search, self.table.user_base, ldap3.SUBTREE, self._by_name(name), name)
            if entry is None or not password:
                return None
            dn, values = entry
            if not self._is_password_of(dn, password):
                return None
            return self._account(search, dn, values)

    def named(self, name: str) -> Account | None:
        return self._find(self.table.user_base, ldap3.SUBTREE, self._by_name(name), name)

    def known(self, subject: str) -> Account | None:
        kind, _, value = subject.partition("=")
        if kind == "dn":
            return self._find(value, ldap3.BASE, "(objectClass=*)")
        raw = bytes.fromhex(value) if kind == "objectGUID" else value.encode("utf-8")
        return self._find(self.table.user_base, ldap3.SUBTREE, f"({kind}={_escaped(raw)})")

    def meet(self) -> None:
        """Ask once, so that a wrong address or password is told when Berth starts. Raises `Silent`."""
        with self._search() as search:
            self._look(search, self.table.user_base, ldap3.BASE, "(objectClass=*)", [])

    # ---- questions -----------------------------------------------------------------------------------------------

    def _by_name(self, name: str) -> str:
        return f"({self.table.user_attribute}={escape_filter_chars(name)})"

    def _find(self, base: str, scope: str, which: str, name: str = "") -> Account | None:
        with self._search() as search:
            entry = self._entry(search, base, scope, which, name)
            return self._account(search, *entry) if entry else None

    def _entry(
        self, search: ldap3.Connection, base: str, scope: str, which: str, name: str
    ) -> tuple[str, Values] | None:
        """The one entry that is meant. Two of a name are nobody: who of them it is cannot be told."""
        found = self._look(search, base, scope, which, [self.table.user_attribute, "uid", *_IDS])
        if len(found) != 1:
            return None
        dn, values = found[0]
        names = _texts(values, self.table.user_attribute)
        # What a directory takes for the same may be more than that: accents, spaces, full-width letters.
        alike = [each for each in names if each.lower() == name] if name else names[:1]
        return (dn, values | {"name": [alike[0].encode("utf-8")]}) if alike else None

    def _account(self, search: ldap3.Connection, dn: str, values: Values) -> Account:
        return Account(_subject(dn, values), _texts(values, "name")[0], self._groups(search, dn, values))

    def _groups(self, search: ldap3.Connection, dn: str, values: Values) -> frozenset[str]:
        """Of the groups that `berth.toml` lists, those that have the entry as a member, as they are written there."""
        listed = {group.id for group in self.table.groups}
        if not listed:
            return frozenset()
        uid = next(iter(_texts(values, "uid") or _texts(values, "name")))
        who = escape_filter_chars(dn)
        which = f"(|(member={who})(uniqueMember={who})(memberUid={escape_filter_chars(uid)}))"
        base = self.table.group_base
        places = [(base, ldap3.SUBTREE)] if base else [(each, ldap3.BASE) for each in sorted(listed)]
        found = {canonical(dn) for at, scope in places for dn, _ in self._look(search, at, scope, which, [])}
        return frozenset(each for each in listed if canonical(each) in found)

    def _look(
        self, search: ldap3.Connection, base: str, scope: str, which: str, wanted: list[str]
    ) -> list[tuple[str, Values]]:
        """Raises `Silent` for an answer that is none: a wrong base is not the same as nobody."""
        with _told():
            search.search(base, which, scope, attributes=wanted or ["1.1"], time_limit=_ANSWER_SECONDS)
        code = search.result["result"]
        if code == _NOTHING and scope == ldap3.BASE:
            return []
        if code not in (_FINE, _MORE):
            raise Silent(f"{self.table.server}: {base}: {search.result['description']}")
        entries = [each for each in search.response or () if each["type"] == "searchResEntry"]
        return [(each["dn"], dict(each["raw_attributes"])) for each in entries]

    # ---- connections ---------------------------------------------------------------------------------------------

    @contextmanager
    def _search(self) -> Iterator[ldap3.Connection]:
        """A connection as the search account. Raises `Silent`."""
        with self._bound(self.table.bind_dn, self.secret) as connection:
            if connection.result["result"] != _FINE:
                raise Silent(
                    f"{self.table.server} does not let in {self.table.bind_dn or 'nobody'!r}: {_said(connection)}"
                )
            yield connection

    def _is_password_of(self, dn: str, password: str) -> bool:
        with self._bound(dn, password) as connection:
            code = connection.result["result"]
        if code not in (_FINE, *_WRONG):
            raise Silent(f"{self.table.server}: {_said(connection)}")
        return bool(code == _FINE)

    @contextmanager
    def _bound(self, dn: str, password: str) -> Iterator[ldap3.Connection]:
        """A connection that has said who it is; whether it was believed is in its `result`."""
        with _told():
            connection = self._connection(dn, password)
            try:
                connection.open()
                if self._starts_tls() and not connection.start_tls():
                    raise LDAPException(f"{self.table.server} does not start TLS: {_said(connection)}")
                connection.bind()
            except BaseException:
                _leave(connection)
                raise
        try:
            yield connection
        finally:
            _leave(connection)

    def _connection(self, dn: str, password: str) -> ldap3.Connection:
        place = urlsplit(self.table.server)
        server = ldap3.Server(
            place.hostname,
            port=place.port or _PORTS[place.scheme],
            use_ssl=place.scheme == "ldaps",
            tls=_Tls(sni=place.hostname),
            get_info=ldap3.NONE,
            connect_timeout=_CONNECT_SECONDS,
        )
        return ldap3.Connection(
            server,
            user=dn or None,
            password=password or None,
            authentication=ldap3.SIMPLE if dn else ldap3.ANONYMOUS,
            receive_timeout=_ANSWER_SECONDS,
            auto_referrals=False,
            check_names=False,
            read_only=True,
        )

    def _starts_tls(self) -> bool:
        place = urlsplit(self.table.server)
        return place.scheme == "ldap" and place.hostname not in _LOOPBACK


class _Tls(ldap3.Tls):
    """TLS as Python itself does it, names in certificates included; ldap3's own is of older days."""

    def wrap_socket(self, connection: ldap3.Connection, do_handshake: bool = False) -> None:
        context = ssl.create_default_context()
        plain = connection.socket
        connection.socket = context.wrap_socket(plain, server_hostname=self.sni, do_handshake_on_connect=do_handshake)


# ---- small things ------------------------------------------------------------------------------------------------


def meet(data: DataFolder, settings: Settings, say: Callable[[str], None]) -> None:
    """What can be wrong before anybody logs in; a directory that is down is told, and no more. Raises
    `SettingsError`."""
    table = settings.auth
    _check_dns(table, str(data.settings_file))
    secret = data.auth_secret(settings)
    if table.bind_dn and not secret:
        raise SettingsError(
            f"{data.settings_file}: auth.secret_file: the password of bind_dn is missing; write it into a file "
            f"(chmod 600) and name that file here, or give it as {AUTH_SECRET}"
        )
    try:
        Directory(table, secret).meet()
    except Silent as silent:
        say(f"The directory cannot be asked ({silent}). Berth starts; nobody can log in or start until it answers.")


def canonical(dn: str) -> tuple[tuple[str, str], ...]:
    """A DN so that two spellings of one are equal. Raises `LDAPInvalidDnError`."""
    return tuple((kind.lower(), value.lower()) for kind, value, _ in parse_dn(dn, strip=True))


def _check_dns(table: AuthTable, where: str) -> None:
    """Whether every DN of the table is one. Raises `SettingsError`."""
    told = [("user_base", table.user_base), ("group_base", table.group_base), ("bind_dn", table.bind_dn)]
    for key, dn in [*told, *(("groups: id", group.id) for group in table.groups)]:
        try:
            if dn:
                canonical(dn)
        except LDAPInvalidDnError:
            raise SettingsError(
                f'{where}: auth.{key}: {dn!r} is no DN; write one such as "cn=lab-a,ou=groups,dc=example,dc=org"'
            ) from None


def _subject(dn: str, values: Values) -> str:
    for kind in _IDS:
        raw = next(iter(values.get(kind, ())), b"")
        if raw:
            return f"{kind}={raw.hex() if kind == 'objectGUID' else raw.decode('utf-8')}"
    return f"dn={dn}"


def _texts(values: Values, kind: str) -> list[str]:
    key = next((each for each in values if each.lower() == kind.lower()), kind)
    return [raw.decode("utf-8", "replace") for raw in values.get(key, ())]


def _escaped(raw: bytes) -> str:
    return "".join(f"\\{byte:02x}" for byte in raw)


def _said(connection: ldap3.Connection) -> str:
    """What the directory answered; never what was sent."""
    return str(connection.result["description"])


@contextmanager
def _told() -> Iterator[None]:
    """What a connection breaks with, as `Silent`."""
    try:
        yield
    except (LDAPException, OSError, ValueError) as error:
        raise Silent(f"{type(error).__name__}: {error}") from None


def _leave(connection: ldap3.Connection) -> None:
    with suppress(LDAPException, OSError):
        connection.unbind()
    if connection.socket is not None:  # it was never quite open, and ldap3 forgets it
        connection.socket.close()
