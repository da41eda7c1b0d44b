"""Charts as SVG by pygal, drawn here: no script, and no style of their own, for the pages' CSP allows none. Their
colours are those of `berth.css`, so that they follow the theme."""

from __future__ import annotations

import sys
from xml.etree import ElementTree

import pygal

from quota.units import CREDIT
from quota.web.daily import Daily

# pygal hangs a finder of plugins into every import, in a form that Python has given up; none is used here.
sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, pygal.PluginImportFixer)]


def daily_chart(daily: Daily, words: str) -> str:
    """Stacked bars, a day each, escaped; `words` is its name for who cannot see it."""
    chart = pygal.StackedBar(
        js=[], css=[], show_legend=False, explicit_size=False, width=960, height=240, max_scale=6, margin=8,
        show_minor_x_labels=True, spacing=4,
    )  # fmt: skip
    chart.x_labels = [day[8:] for day in daily.days]
    for profile, amounts in daily.profiles.items():
        chart.add(profile, [amount / CREDIT if amount else None for amount in amounts])
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
