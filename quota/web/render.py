"""HTML from templates: Jinja with autoescape, and the filters that make words of values."""

from __future__ import annotations

import hashlib
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from zoneinfo import ZoneInfo

import jinja2

from quota import i18n
from quota.web.charts import daily_chart
from quota.web.period import parse_month
from quota.web.words import clock_words, credits_words, instant

HERE = Path(__file__).parent
STATIC = HERE / "static"


def month_words(name: str) -> str:
    """ "2026-03" -> "March 2026"."""
    return f"{parse_month(name, ZoneInfo('UTC')).start:%B %Y}"


@lru_cache(maxsize=64)
def asset_hash(name: str) -> str:
    """Part of an asset's address, so that a browser may keep it until it changes."""
    return hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]


def make_environment(zone: str) -> jinja2.Environment:
    """The templates of the pages, with times on the clock of `zone`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
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
    environment.filters.update({"clock": clock, "iso": instant, "credits": credits_words, "month": month_words})
    return environment
