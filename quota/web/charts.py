"""Charts as SVG by pygal, drawn here: no script, and no style of their own, for the pages' CSP allows none. Their
colours are those of `berth.css`, so that they follow the theme."""

from __future__ import annotations

import sys
from calendar import monthrange
from collections.abc import Sequence
from datetime import date
from xml.etree import ElementTree

import pygal

from quota.units import CREDIT
from quota.web.daily import Daily
from quota.web.held import Held

# pygal hangs a finder of plugins into every import, in a form that Python has given up; none is used here.
sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, pygal.PluginImportFixer)]


def drawing(kind: type[pygal.graph.graph.Graph], **more: object) -> pygal.graph.graph.Graph:
    """What all charts have in common."""
    return kind(
        js=[], css=[], show_legend=False, explicit_size=False, width=960, height=240, max_scale=6, margin=8,
        show_minor_x_labels=True, spacing=4, **more,
    )  # fmt: skip


def whole_month(days: Sequence[str]) -> list[str]:
    """The days of a month that has begun, and those to come: a bar is as wide on its first day as on its last."""
    if not days:
        return []
    first = date.fromisoformat(days[0])
    return [f"{day:02}" for day in range(first.day, monthrange(first.year, first.month)[1] + 1)]


def daily_chart(daily: Daily, words: str) -> str:
    """Stacked bars, a day each, escaped; `words` is its name for who cannot see it."""
    chart = drawing(pygal.StackedBar)
    chart.x_labels = whole_month(daily.days)
    for profile, amounts in daily.profiles.items():
        chart.add(profile, [amount / CREDIT if amount else None for amount in amounts])
    return plain(chart.render_tree(), words)


def balance_chart(days: Sequence[str], balances: Sequence[int], words: str) -> str:
    """A line over the same days as `daily_chart`'s; days to come have no point on it."""
    chart = drawing(pygal.Line, show_dots=len(balances) < 2, include_x_axis=True)
    chart.x_labels = whole_month(days)
    to_come = [None] * (len(chart.x_labels) - len(balances))
    chart.add("", [amount / CREDIT for amount in balances] + to_come)
    return plain(chart.render_tree(), words)


def held_chart(held: Held, words: str) -> str:
    """Stacked bars of GPU-hours, a day each, below what was possible."""
    chart = drawing(pygal.StackedBar, range=(0, max(held.possible, default=0) or 1))
    chart.x_labels = [day[5:] for day in held.days]
    for name, hours in held.parts.items():
        chart.add(name, [round(hour, 3) or None for hour in hours])
    return plain(chart.render_tree(), words)


def plain(tree: ElementTree.Element, words: str) -> str:
    """The drawing without style, script and the texts of a tooltip that needs a script."""
    for parent in list(tree.iter()):
        parent.attrib.pop("style", None)
        for child in list(parent):
            tooltip = "tooltip-overlay" in child.get("class", "")
            if tooltip or not isinstance(child.tag, str) or child.tag in ("defs", "desc", "title"):
                parent.remove(child)
    tree.set("role", "img")
    tree.set("aria-label", words)
    return ElementTree.tostring(tree, encoding="unicode")
