"""The table `[auth]` of `berth.toml`: how people log in, who may, and which groups of the provider mean what here."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from hub_config.settings_groups import Names

Kind = Literal["trial", "passwords", "pam", "ldap", "oidc", "github", "gitlab", "google"]

#: Kinds whose log-in page is the provider's own, by OAuth 2.
OAUTH: Final[Collection[Kind]] = ("oidc", "github", "gitlab", "google")

_EVERYWHERE = ("kind", "admins", "users", "people")
_OAUTH_KEYS = ("url", "label", "client_id", "secret_file")

#: Which keys mean something to which kind; any other is an error, since it would be passed over in silence.
_KEYS: Final[dict[str, Collection[str]]] = {
    "trial": ("kind",),
    "passwords": ("kind", "admins"),
    "pam": (*_EVERYWHERE, "groups"),
    "ldap": (*_EVERYWHERE, "groups", "server", "user_base", "user_attribute", "group_base", "bind_dn", "secret_file"),
    "oidc": (*_EVERYWHERE, *_OAUTH_KEYS, "groups", "issuer", "name_claim", "groups_claim", "scopes"),
    "github": (*_EVERYWHERE, *_OAUTH_KEYS, "groups", "issuer"),
    "gitlab": (*_EVERYWHERE, *_OAUTH_KEYS, "groups", "issuer"),
    "google": (*_EVERYWHERE, *_OAUTH_KEYS, "domains"),
}
_NEEDED: Final[dict[str, Collection[str]]] = {
    "ldap": ("server", "user_base"),
    "oidc": ("issuer", "client_id"),
    "github": ("client_id",),
    "gitlab": ("client_id",),
    "google": ("client_id",),
}
#: Where an account is had by whoever asks for one.
_PUBLIC = ("https://github.com", "https://gitlab.com")


def _identifier(value: Any) -> Any:
    """An id as text: GitHub's and GitLab's are numbers."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _tables(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _address(value: Any) -> Any:
    """A web address without a slash at its end; plain http only within this machine."""
    if value == "" or not isinstance(value, str):
        return value
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if not host or parts.query or parts.fragment or parts.username or parts.scheme not in ("https", "http"):
        raise ValueError(f'{value!r} is not a web address; write one such as "https://id.example.org/realms/lab"')
    if parts.scheme == "http" and host not in ("127.0.0.1", "localhost", "::1"):
        raise ValueError(f"{value!r}: who you are must not travel in the clear; write https://")
    return value.rstrip("/")


def _ldap_server(value: Any) -> Any:
    if value == "" or not isinstance(value, str):
        return value
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if not host or parts.scheme not in ("ldaps", "ldap") or parts.path.strip("/") or parts.query or parts.username:
        raise ValueError(f'{value!r} is not the address of a directory; write one such as "ldaps://ldap.example.org"')
    return value.rstrip("/")


Address = Annotated[str, BeforeValidator(_address)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class AuthGroup(_Table):
    """One group of the provider. The provider and the id name it; names that somebody could choose never do."""

    id: Annotated[str, BeforeValidator(_identifier)] = Field(
        min_length=1,
        max_length=500,
        description="The provider's own id of the group: what is in the groups claim (oidc), a team's number (github), "
        "a group's number (gitlab), a group's DN (ldap), a gid (pam).",
    )
    group: str = Field("", description="The [[groups]] name that its members belong to here; empty: none.")
    admin: bool = Field(False, description="Whether its members are admins of Berth.")

    @model_validator(mode="after")
    def _means_something(self) -> AuthGroup:
        if not self.group and not self.admin:
            raise ValueError('this group means nothing here; give it group = "…" or admin = true')
        return self


class AuthTable(_Table):
    kind: Kind = Field(
        "trial",
        description='How people log in. "trial": two shared passwords; "passwords": one for each user, kept here; '
        '"pam": accounts of this machine; "ldap": a directory; "oidc": OpenID Connect, such as Keycloak; '
        '"github", "gitlab", "google".',
    )
    people: Literal["listed", "all"] = Field(
        "listed",
        description='Who may log in. "listed": admins, users and members of the [[auth.groups]]; "all": everybody '
        "whom the provider knows.",
    )
    users: Names = Field((), description="Names of people who may log in though no group of theirs is listed.")
    admins: Names = Field((), description="Names of people who are admins, whatever their groups.")
    url: Address = Field(
        "",
        description="Where browsers reach Berth, as registered with the provider: it leads back to "
        "URL/hub/oauth_callback. Empty: as the browser wrote it.",
    )
    label: str = Field("", max_length=60, description='What the log-in button says after "Log in with".')
    client_id: str = Field("", max_length=300, description="Berth's id at the provider.")
    secret_file: str = Field(
        "",
        description="A file with Berth's secret at the provider, or the password of bind_dn; relative to berth.toml. "
        "BERTH_AUTH_SECRET in the environment goes before it.",
    )
    issuer: Address = Field(
        "", description="The provider's address (oidc: its issuer). For github and gitlab only where it is your own."
    )
    name_claim: str = Field(
        "preferred_username", min_length=1, max_length=100, description="The claim with a person's name here."
    )
    groups_claim: str = Field(
        "groups", min_length=1, max_length=100, description="The claim with the ids of a person's groups."
    )
    scopes: Names = Field(("openid", "profile", "email"), description="What is asked of the provider.")
    domains: Names = Field((), description="Google's organisations whose people may log in, by their domains.")
    server: Annotated[str, BeforeValidator(_ldap_server)] = Field(
        "", description="The directory: ldaps://HOST, or ldap://HOST, which is then asked for TLS before anything else."
    )
    user_base: str = Field("", max_length=500, description="Where people are in the directory, as a DN.")
    user_attribute: str = Field(
        "uid", pattern=r"^[A-Za-z][A-Za-z0-9-]{0,60}$", description="The attribute with a person's log-in name."
    )
    group_base: str = Field("", max_length=500, description="Where groups are in the directory, as a DN.")
    bind_dn: str = Field("", max_length=500, description="As whom the directory is searched; empty: anonymously.")
    groups: Annotated[tuple[AuthGroup, ...], BeforeValidator(_tables)] = Field(
        (), description="Groups of the provider that mean something here."
    )

    @model_validator(mode="before")
    @classmethod
    def _no_secret(cls, values: Any) -> Any:
        """A secret has no place in a file that is shown around; what was written is never told again."""
        if isinstance(values, dict):
            for key in values:
                if ("secret" in key or "password" in key) and key != "secret_file":
                    raise ValueError(
                        f"{key}: a secret has no place in this file; write it into a file of its own (chmod 600) and "
                        "name that as secret_file, or give it in the environment as BERTH_AUTH_SECRET"
                    )
        return values

    @model_validator(mode="after")
    def _keys_fit_the_kind(self) -> AuthTable:
        foreign = self.model_fields_set - set(_KEYS[self.kind])
        useless = sorted(key for key in foreign if getattr(self, key) != type(self).model_fields[key].default)
        if useless:
            raise ValueError(f"{useless[0]}: means nothing to kind = {self.kind!r}; remove it")
        missing = next((key for key in _NEEDED.get(self.kind, ()) if not getattr(self, key)), None)
        if missing:
            raise ValueError(f"{missing}: this key is needed for kind = {self.kind!r}")
        fault = _capitals(self) or _doors(self) or _same_id(self.groups) or _gids(self)
        if fault:
            raise ValueError(fault)
        return self


def _capitals(table: AuthTable) -> str:
    for key in ("admins", "users"):
        odd = next((name for name in getattr(table, key) if name != name.strip().lower()), None)
        if odd:
            return f"{key}: {odd!r} would never match; names here are in lower case: {odd.strip().lower()!r}"
    return ""


def _doors(table: AuthTable) -> str:
    """What is wrong with who may log in: everybody on Earth, or nobody."""
    if table.kind in ("trial", "passwords"):
        return ""
    anyone = (table.kind in ("github", "gitlab") and home(table) in _PUBLIC) or (
        table.kind == "google" and not table.domains
    )
    if table.people == "all" and anyone:
        rest = " or domains" if table.kind == "google" else " or [[auth.groups]]"
        return f'people: with "all" whoever has an account there could use your GPUs; list users{rest} instead'
    if table.people == "listed" and not (table.users or table.admins or table.groups):
        return 'people: nobody could log in; name users, admins or [[auth.groups]], or write people = "all"'
    if not table.admins and not any(group.admin for group in table.groups):
        return "admins: nobody could grant or limit anything; name one, or an [[auth.groups]] with admin = true"
    return ""


def _same_id(groups: Iterable[AuthGroup]) -> str:
    seen: set[tuple[str, str]] = set()
    for each in groups:
        if (each.id, each.group) in seen:
            return f"groups: {each.id!r} stands there twice for {each.group or 'admins'!r}; remove one"
        seen.add((each.id, each.group))
    return ""


def _gids(table: AuthTable) -> str:
    odd = next((group.id for group in table.groups if not group.id.isdecimal()), None)
    if table.kind == "pam" and odd:
        return f"groups: {odd!r} is no gid; names change hands, numbers do not: getent group {odd}"
    return ""


def home(table: AuthTable) -> str:
    """The provider itself, as the first half of an identity: an address that is one and the same for all of its
    people and groups."""
    known = {"github": "https://github.com", "gitlab": "https://gitlab.com", "google": "https://accounts.google.com"}
    return table.issuer or table.server or known.get(table.kind, table.kind)
