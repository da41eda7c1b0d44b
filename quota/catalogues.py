"""The catalogues of `quota/locale`, read when a process starts. They are kept as text (`.po`) and compiled in memory,
so that what a translator edits is what is shown."""

from __future__ import annotations

import io
from gettext import GNUTranslations
from pathlib import Path

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

from quota import i18n

HERE = Path(__file__).parent / "locale"


def load(default: str = "en") -> None:
    """Make every language of `i18n.LANGUAGES` known to this process; `default` is spoken where nobody says another."""
    for tag in i18n.LANGUAGES:
        path = HERE / tag.replace("-", "_") / "LC_MESSAGES" / "berth.po"
        if path.exists():
            i18n.add(tag, read(path))
    i18n.set_default(default)


def read(path: Path) -> GNUTranslations:
    """One catalogue. Messages marked fuzzy are left out: they are said in English until somebody has looked."""
    with path.open("rb") as text:
        catalogue = read_po(text)
    compiled = io.BytesIO()
    write_mo(compiled, catalogue)
    compiled.seek(0)
    return GNUTranslations(compiled)
