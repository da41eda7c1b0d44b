"""HTML from templates: Jinja with autoescape, and the filters that make words of values."""

from __future__ import annotations

import hashlib
import logging
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import jinja2

from quota import i18n
from quota.i18n import _
from quota.web.charts import balance_chart, daily_chart, held_chart
from quota.web.period import parse_month
from quota.web.words import WHOLE_MONTHS, clock_words, credits_words, instant

HERE = Path(__file__).parent
STATIC = HERE / "static"

#: What every page is given.
ALWAYS = frozenset(
    {
        "title",
        "here",
        "site",
        "zone",
        "now",
        "prefix",
        "hub_base",
        "asset",
        "viewer",
        "xsrf_token",
        "flash",
        "groups",
        "told",
    }
)

log = logging.getLogger("berth.web")


def month_words(name: str) -> str:
    """ "2026-03" -> "March 2026"."""
    start = parse_month(name, ZoneInfo("UTC")).start
    return _("%(month)s %(year)s", month=_(WHOLE_MONTHS[start.month - 1]), year=start.year)


class Pages:
    """Makes pages of templates. Where one of the site's own fails, that is logged and the page is made without them."""

    def __init__(self, zone: str, own: Path | None = None) -> None:
        self._ours = make_environment(zone)
        self._own = make_environment(zone, own) if own is not None else None

    def render(self, name: str, **values: Any) -> str:
        if self._own is not None:
            try:
                return self._own.get_template(name).render(**values)
            except Exception:
                told = {"event": "site-template-failed", "template": name}
                log.exception("The page %s could not be made with the site's templates", name, extra=told)
        return self._ours.get_template(name).render(**values)


def _loader(own: Path | None) -> jinja2.BaseLoader:
    ours = jinja2.FileSystemLoader(HERE / "templates")
    if own is None:
        return ours
    return jinja2.ChoiceLoader(
        [jinja2.FileSystemLoader([own / "service", own]), jinja2.PrefixLoader({"berth": ours}), ours]
    )


@lru_cache(maxsize=64)
def asset_hash(name: str) -> str:
    """Part of an asset's address, so that a browser may keep it until it changes."""
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]


def make_environment(zone: str, own: Path | None = None) -> jinja2.Environment:
    """The templates of the pages, with times on the clock of `zone`; those of the site's own folder go before."""
    environment = jinja2.Environment(
        loader=_loader(own),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(i18n.TEMPLATES)
    tz = ZoneInfo(zone)

    def clock(moment: datetime) -> str:
        return clock_words(moment, tz)

    def clock_after(moment: datetime, before: datetime) -> str:
        same = moment.astimezone(tz).date() == before.astimezone(tz).date()
        return f"{moment.astimezone(tz):%H:%M:%S}" if same else clock(moment)

    environment.filters.update({"clock_after": clock_after, "daily_chart": daily_chart})
    environment.filters.update({"balance_chart": balance_chart, "held_chart": held_chart})
    environment.filters.update({"clock": clock, "iso": instant, "credits": credits_words, "month": month_words})
    return environment
