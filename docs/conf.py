"""How Sphinx makes a site of these pages. `reference/` is written anew at each build, from the code itself."""

from pathlib import Path

from sphinx.application import Sphinx

from hub_config.reference import pages

project = "Berth"
author = "The Berth developers"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Berth"
myst_heading_anchors = 3
exclude_patterns = ["pictures"]


def write_reference(app: Sphinx) -> None:
    """Only what changed is written, so that a second build has nothing to do."""
    folder = Path(app.srcdir) / "reference"
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", write_reference)
