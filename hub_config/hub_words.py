"""The Hub's own templates speak the reader's language: Berth's functions of words in all of them, and the page says
which language it is in. Handed to the Hub as an extension of its Jinja environments."""

from __future__ import annotations

from jinja2 import Environment
from jinja2.ext import Extension

from quota import i18n


class HubWords(Extension):
    """`_`, `_n`, `language` and `languages` in every template of the Hub, macros included."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        environment.globals.update(i18n.TEMPLATES)

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """The Hub's page has its language written into it, where no block of a template reaches."""
        return source.replace('<html lang="en">', '<html lang="{{ language() }}">')
