"""From the table `[auth]` to an authenticator and its traitlets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hub_config import auth
from hub_config.compose import Parts
from hub_config.discovery import kept
from hub_config.first_passwords import admins_of
from hub_config.settings_auth import OAUTH, AuthTable
from quota.i18n import N_

LABELS: Final = {
    "pam": "accounts of this machine",
    "ldap": "the directory",
    "oidc": N_("your organisation"),
    "github": "GitHub",
    "gitlab": "GitLab",
    "google": "Google",
}
_CALLBACK: Final = "/hub/oauth_callback"
_TIMES: Final = {"connect_timeout": 5.0, "request_timeout": 10.0}  # a start waits for it


def configure(c: Any, made: Parts) -> None:
    """The authenticator of the site, by its kind."""
    PRESETS[made.settings.auth.kind](c, made)


def label(table: AuthTable) -> str:
    """What the log-in button says after "Log in with"."""
    return table.label or LABELS.get(table.kind, "")


# ---- shared passwords ------------------------------------------------------------------------------------------


def _trial(c: Any, made: Parts) -> None:
    logins = made.data.passwords()
    c.JupyterHub.authenticator_class = auth.LocalAuthenticator
    c.LocalAuthenticator.admin_users = {logins["admin"]["name"]}
    c.LocalAuthenticator.admin_password = logins["admin"]["password"]
    c.LocalAuthenticator.user_password = logins["researcher"]["password"]
    c.LocalAuthenticator.allowed_users = {logins["researcher"]["name"]}
    c.LocalAuthenticator.allow_existing_users = True  # whom an admin adds may log in


def _passwords(c: Any, made: Parts) -> None:
    from hub_config.auth_passwords import PasswordRules

    data = made.data
    c.JupyterHub.authenticator_class = PasswordRules
    c.PasswordRules.data_of = lambda: data
    c.PasswordRules.admin_users = set(admins_of(made.settings.auth.admins))
    c.PasswordRules.allow_existing_users = False  # whose account is open, and nobody else
    c.PasswordRules.refresh_pre_spawn = True


# ---- people whom somebody else knows ---------------------------------------------------------------------------


def _people(c: Any, made: Parts, rules: type) -> Any:
    """What a directory, accounts of this machine and providers have in common; the section of their class."""
    from hub_config.auth_people import bind

    table = made.settings.auth
    c.JupyterHub.authenticator_class = rules
    section = c[rules.__name__]
    section.table_of = lambda: table
    section.admin_users = set(table.admins)
    section.allowed_users = {*table.users, *table.admins}
    section.allow_existing_users = False  # whoever was let in by a group once would be for ever
    section.manage_groups = bool(table.groups)
    section.refresh_pre_spawn = True
    section.enable_auth_state = True
    section.reconcile_auth_state_hook = bind
    c.CryptKeeper.keys = [bytes.fromhex(made.data.secret("auth_state"))]
    return section


def _ldap(c: Any, made: Parts) -> None:
    from hub_config.auth_ldap import LdapRules
    from hub_config.ldap_directory import Directory

    directory = Directory(made.settings.auth, made.data.auth_secret(made.settings))
    _people(c, made, LdapRules)
    c.LdapRules.directory_of = lambda: directory


def _pam(c: Any, made: Parts) -> None:
    from hub_config.auth_pam import PamRules

    _people(c, made, PamRules)


# ---- providers -------------------------------------------------------------------------------------------------


def _provider(c: Any, made: Parts, rules: type) -> None:
    """What all providers have in common."""
    table = made.settings.auth
    section = _people(c, made, rules)
    section.client_id = table.client_id
    section.client_secret = made.data.auth_secret(made.settings)
    section.oauth_callback_url = f"{table.url}{_CALLBACK}" if table.url else ""
    section.login_service = label(table)
    section.http_request_kwargs = _TIMES


def _oidc(c: Any, made: Parts) -> None:
    from hub_config.auth_provider import OidcRules

    table = made.settings.auth
    provider = kept(made.data, table.issuer)
    _provider(c, made, OidcRules)
    c.OidcRules.authorize_url = provider.authorize
    c.OidcRules.token_url = provider.token
    c.OidcRules.userdata_url = provider.userinfo
    c.OidcRules.end_session = provider.end_session
    c.OidcRules.username_claim = table.name_claim
    c.OidcRules.scope = list(table.scopes)


def _github(c: Any, made: Parts) -> None:
    from hub_config.auth_provider import GitHubRules

    table = made.settings.auth
    _provider(c, made, GitHubRules)
    if table.issuer:
        c.GitHubRules.github_url = table.issuer
    c.GitHubRules.scope = ["read:user", "read:org"] if table.groups else ["read:user"]
    c.GitHubRules.populate_teams_in_auth_state = bool(table.groups)


def _gitlab(c: Any, made: Parts) -> None:
    from hub_config.auth_provider import GitLabRules

    table = made.settings.auth
    _provider(c, made, GitLabRules)
    if table.issuer:
        c.GitLabRules.gitlab_url = table.issuer
    c.GitLabRules.scope = ["read_api"] if table.groups else ["read_user"]


def _google(c: Any, made: Parts) -> None:
    from hub_config.auth_provider import GoogleRules

    table = made.settings.auth
    _provider(c, made, GoogleRules)
    c.GoogleRules.hosted_domain = list(table.domains)
    c.GoogleRules.strip_domain = False  # one and the same name whether one domain is listed or two
    # Without them Google gives no refresh token, and membership could not be asked an hour after the log-in.
    c.GoogleRules.extra_authorize_params = {"access_type": "offline", "prompt": "consent"}


PRESETS: Final[dict[str, Callable[[Any, Parts], None]]] = {
    "trial": _trial,
    "passwords": _passwords,
    "pam": _pam,
    "ldap": _ldap,
    "oidc": _oidc,
    "github": _github,
    "gitlab": _gitlab,
    "google": _google,
}
assert set(OAUTH) <= set(PRESETS)
