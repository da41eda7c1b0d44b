"""The Hub's own templates speak the reader's language: Berth's functions of words in all of them, and the Hub's texts
on the pages that Berth extends, which no block of a template reaches. Handed to the Hub as an extension of its Jinja
environments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

import jupyterhub._data
from jinja2 import Environment
from jinja2.ext import Extension

from quota import i18n
from quota.i18n import N_, _

#: Texts of the Hub's templates (6.1), as they stand there between tags or in an attribute. What a later Hub words
#: differently stays English, and a test says so.
STOCK: Final[Mapping[str, tuple[str, ...]]] = {
    "page.html": (
        N_("Toggle navigation"),
        N_("Toggle dark mode"),
        N_("Login"),
        N_("Logout"),
        N_("Close"),
        N_("JupyterHub requires JavaScript."),
        N_("Please enable it to proceed."),
    ),
    "logout.html": (N_("Successfully logged out."),),
    "spawn.html": (N_("Start"),),
    "spawn_pending.html": (N_("Complete"), N_("Event log")),
    "token.html": (
        N_("Manage JupyterHub Tokens"),
        N_("Note"),
        N_("note to identify your new token"),
        N_("This note will help you keep track of what your tokens are for."),
        N_("Token expires in"),
        N_("You can configure when your token will expire."),
        N_("Permissions"),
        N_("list of scopes for the token to have, separated by space"),
        N_(
            "You can limit the permissions of the token so it can only do what you want it to. "
            "If none are specified, the token will have permission to do everything you can do. See the"
        ),
        N_("JupyterHub documentation for a list of available scopes"),
        N_("Request new API token"),
        N_("Your new API Token"),
        N_("Copy this token. You won't be able to see it again, but you can always come back here to get a new one."),
        N_("API Tokens"),
        N_(
            "These are tokens with access to the JupyterHub API. Permissions for each token may be viewed via the "
            "JupyterHub tokens API. Revoking the API token for a running server will require restarting that server."
        ),
        N_("Last used"),
        N_("Created"),
        N_("Expires"),
        N_("Authorized Applications"),
        N_(
            "These are applications that use OAuth with JupyterHub to identify users (mostly notebook servers). "
            "OAuth tokens can generally only be used to identify you, not take actions on your behalf."
        ),
        N_("Application"),
        N_("First authorized"),
    ),
}

_HUBS: Final = Path(jupyterhub._data.DATA_FILES_PATH) / "templates"

#: How long a token may live, as the Hub puts it into its form.
TIMES: Final = (N_("1 Hour"), N_("1 Day"), N_("1 Week"), N_("1 Month"), N_("Never"))

#: Of the Hub's expressions, and what stands there instead.
_REWRITTEN: Final = {
    '<html lang="en">': '<html lang="{{ language() }}">',
    "Error: {{ error_message }}": "{{ error_message }}",
    "Spawning server for {{ for_user.name }}": '{{ _("For %(name)s", name=for_user.name) }}',
    "{{ token_expires_in_options_html | safe }}": "{{ said_times(token_expires_in_options_html) | safe }}",
}

FOR_SOMEBODY: Final = N_("For %(name)s")


class HubWords(Extension):
    """`_`, `_n`, `language` and `languages` in every template of the Hub, macros included."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        environment.globals.update({**i18n.TEMPLATES, "said_times": said_times})

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """The source of one of the Hub's templates with its texts in `_()`; one of ours has them already."""
        for theirs, ours in _REWRITTEN.items():
            source = source.replace(theirs, ours)
        if filename is not None and not Path(filename).is_relative_to(_HUBS):
            return source  # Berth's or the site's page of the same name: it says `_("Logout")` itself
        for words in STOCK.get((name or "").removeprefix("templates/"), ()):
            source = _place(words).sub(lambda _found, said=words: "{{ _(" + repr(said) + ") }}", source)  # type: ignore[misc]
        return source


@lru_cache(maxsize=128)
def _place(words: str) -> re.Pattern[str]:
    """Where these words are all that stands between two tags, or in an attribute."""
    spread = r"\s+".join(re.escape(word) for word in words.split())
    return re.compile(rf'(?:(?<=[>"])|(?<=%}}))\s*{spread}\s*(?=[<"])')


def said_times(options: str) -> str:
    """The Hub's `<option>`s of times in the reader's language."""
    for words in TIMES:
        options = options.replace(f">{words}<", f">{_(words)}<")
    return options
