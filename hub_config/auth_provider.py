"""Log-in by a provider (OpenID Connect, GitHub, GitLab, Google): `oauthenticator` does OAuth, and here are Berth's
rules: a person is (issuer, subject), groups count by their ids, and membership is asked anew at every start.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from http.client import HTTPException
from typing import Any

from jupyterhub.utils import maybe_future
from oauthenticator.generic import GenericOAuthenticator
from oauthenticator.github import GitHubOAuthenticator
from oauthenticator.gitlab import GitLabOAuthenticator
from oauthenticator.google import GoogleOAuthenticator
from oauthenticator.oauth2 import OAuthenticator
from tornado import web
from tornado.httpclient import HTTPClientError
from tornado.httputil import url_concat
from traitlets import Unicode

from hub_config.auth_people import PeopleRules
from hub_config.fresh import refusal, remember
from hub_config.identities import Taken
from hub_config.membership import Identity, claim_at, ids_in, membership, subject_of
from hub_config.settings_auth import home
from quota.errors import Reason, Refused
from quota.i18n import _
from spawner.messages import words
from spawner.names import check_username

#: What a request to a provider that is down or talks nonsense ends with.
SILENCE = (HTTPClientError, OSError, HTTPException, asyncio.TimeoutError)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a refresh came to: the Hub's answer (a model, True to keep what it has, False to log in again), and why a
    start must be refused meanwhile."""

    answer: Any
    refusal: Reason | None = None


class ProviderRules(PeopleRules, OAuthenticator):
    """What holds for every provider. Stands before one of `oauthenticator`'s classes in the list of bases."""

    @cached_property
    def _one_at_a_time(self) -> defaultdict[str, asyncio.Lock]:
        return defaultdict(asyncio.Lock)  # a refresh token that rotates is spent by the first of two

    @property
    def custom_403_message(self) -> str:
        """What somebody reads who is not let in."""
        return words(Refused(Reason.NOT_A_MEMBER))

    # ---- who it is, and what may it ------------------------------------------------------------------------------

    def user_info_to_username(self, user_info: dict[str, Any]) -> str:
        """The claimed name. Raises 403 where there is none, or where it is an address that nobody has verified."""
        name = user_info.get(self.username_claim)
        if not isinstance(name, str) or not name.strip():
            raise web.HTTPError(
                403,
                _(
                    "The log-in provider sends no “%(claim)s”, by which people are named here. An admin can name "
                    "another claim as auth.name_claim, or ask for more scopes.",
                    claim=self.username_claim,
                ),
            )
        if self.username_claim == "email" and user_info.get("email_verified") is False:
            # or anybody is whom they say they are
            raise web.HTTPError(403, _("The log-in provider has not verified the e-mail address that names you here."))
        claimed: str = super().user_info_to_username(user_info)
        return claimed

    async def group_ids(self, auth_state: dict[str, Any]) -> frozenset[str]:
        """The provider's ids of the person's groups."""
        return ids_in(claim_at(auth_state[self.user_auth_state_key], self.table.groups_claim))

    async def update_auth_model(self, auth_model: dict[str, Any]) -> dict[str, Any]:
        """Name, admin and groups by Berth's rules. Raises 403 where the name is another person's."""
        model: dict[str, Any] = await super().update_auth_model(auth_model)
        state = model["auth_state"]
        claims = state[self.user_auth_state_key]
        who = Identity(home(self.table), subject_of(claims))
        found = membership(self.table.groups, await self.group_ids(state) if self.table.groups else ())
        try:
            check_username(model["name"])
            model["name"] = self.identities.name(who, model["name"])
        except Refused as refused:  # told with its reason; the Hub would only say that it was not allowed
            raise refusal(refused.reason, **refused.facts) from None
        except Taken:
            raise refusal(Reason.NAME_TAKEN, name=model["name"]) from None
        model["admin"] = model["name"] in self.table.admins or found.admin
        state["berth"] = {"subject": who.subject, "groups": list(found.groups), "listed": found.listed}
        return model

    async def get_user_groups(self, auth_state: dict[str, Any]) -> set[str]:
        """The Hub's groups of the person: those of `[[groups]]` that a listed group of the provider stands for."""
        return set(auth_state["berth"]["groups"])

    async def check_allowed(self, username: str, auth_model: dict[str, Any] | None) -> bool:
        """Whether the person may use the site at all; asked at every log-in and at every refresh."""
        if auth_model is None:  # somebody whom an admin adds
            return True
        if await super().check_allowed(username, auth_model):
            return True
        return self.table.people == "all" or bool(auth_model["auth_state"]["berth"]["listed"])

    # ---- log-in --------------------------------------------------------------------------------------------------

    async def authenticate(self, handler: Any, data: Any = None, **more: Any) -> Any:
        """As the parent; a provider that is down is a 503 in words."""
        try:
            return await super().authenticate(handler, data, **more)
        except ValueError as error:  # an answer without a subject, or that is no JSON
            self.log.error("The provider's answer cannot be used: %s", error)
            raise refusal(Reason.PROVIDER_SILENT) from None
        except SILENCE as error:
            self.log.warning("The provider failed at a log-in: %s", error)
            if isinstance(error, HTTPClientError) and 400 <= error.code < 500:
                raise web.HTTPError(403, _("The log-in provider did not accept this log-in. Try again.")) from None
            raise refusal(Reason.PROVIDER_SILENT) from None

    # ---- membership, asked anew ----------------------------------------------------------------------------------

    async def refresh_user(self, user: Any, handler: Any = None, **more: Any) -> Any:
        """Ask the provider who the person is by now. What came of it is kept on the request for `hub_config.fresh`,
        which refuses a start where the Hub would go on with what it knew."""
        async with self._one_at_a_time[user.name]:
            asked = await self._ask(user, handler, more)
            if isinstance(asked.answer, dict):  # before the next one asks with a refresh token that is spent
                await user.save_auth_state(asked.answer["auth_state"])
        remember(handler, user.name, asked.refusal)
        return asked.answer

    async def _ask(self, user: Any, handler: Any, more: dict[str, Any]) -> _Asked:
        try:
            model = await super().refresh_user(user, handler, **more)
        except (*SILENCE, ValueError) as error:
            self.log.warning("The provider does not tell about %s: %s", user.name, error)
            return _Asked(True, Reason.PROVIDER_SILENT)
        except web.HTTPError as error:
            self.log.warning("%s has to log in again: %s", user.name, error)
            return _Asked(False, Reason.LOG_IN_AGAIN)
        if not isinstance(model, dict) or model["name"] != user.name:
            return _Asked(False, Reason.LOG_IN_AGAIN)
        welcome = await maybe_future(self.check_blocked_users(user.name, model)) and await self.check_allowed(
            user.name, model
        )
        if welcome:
            return _Asked(model)
        user.sync_groups([])  # at once, and whoever asks: the Hub keeps the groups of whom it cannot refresh
        self.parent.db.commit()
        return _Asked(False, Reason.NOT_A_MEMBER)


class OidcRules(ProviderRules, GenericOAuthenticator):
    """OpenID Connect, such as Keycloak."""

    end_session = Unicode(help="The provider's log-out (OpenID Connect RP-Initiated Logout 1.0).").tag(config=True)

    async def goodbye(self, user: Any) -> str:
        """Where a browser goes on to log out at the provider as well; empty where it has no such place."""
        if not self.end_session:
            return ""
        hint = (await user.get_auth_state() or {}).get("id_token")
        words = {"client_id": self.client_id} | ({"id_token_hint": hint} if hint else {})
        if self.table.url:  # registered with the provider, or it would refuse the log-out
            words["post_logout_redirect_uri"] = f"{self.table.url}/hub/login"
        return str(url_concat(self.end_session, words))


class GitHubRules(ProviderRules, GitHubOAuthenticator):
    """GitHub: groups are teams, by their numbers."""

    async def group_ids(self, auth_state: dict[str, Any]) -> frozenset[str]:
        return ids_in([team.get("id") for team in auth_state.get("teams", [])])


class GitLabRules(ProviderRules, GitLabOAuthenticator):
    """GitLab: groups by their numbers."""

    async def group_ids(self, auth_state: dict[str, Any]) -> frozenset[str]:
        headers = {"Accept": "application/json", "Authorization": f"Bearer {auth_state['access_token']}"}
        found: set[str] = set()
        page = "1"
        while page:
            url = f"{self.gitlab_api}/groups?min_access_level=10&per_page=100&page={page}"
            answer = await self.httpfetch(url, "asking for groups", parse_json=False, method="GET", headers=headers)
            found |= ids_in([group.get("id") for group in _json(answer.body)])
            page = answer.headers.get("X-Next-Page", "")
        return frozenset(found)


class GoogleRules(ProviderRules, GoogleOAuthenticator):
    """Google: people by their organisation's domain. It tells no groups at a log-in."""


def _json(body: bytes) -> list[dict[str, Any]]:
    value = json.loads(body)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
