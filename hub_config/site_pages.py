"""The site's own templates: where Hub and service find them, and a check at boot, so that no page breaks later."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

import jupyterhub._data
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, TemplateSyntaxError, meta, nodes
from jinja2.exceptions import TemplateNotFound
from jinja2.ext import Extension

from hub_config.hub_words import HubWords
from hub_config.settings import SettingsError
from quota.web.render import ALWAYS, make_environment

HERE: Final = Path(__file__).parent / "templates"
#: What a folder of templates is divided into: pages of the Hub, pages of service `berth`, and what they include.
PARTS: Final = ("hub", "service", "shared")


class BerthPages(Extension):
    """`berth/NAME` in a template of the Hub is Berth's own page, as `templates/NAME` is JupyterHub's."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        berths = PrefixLoader({"berth": FileSystemLoader(HERE)})
        environment.loader = ChoiceLoader([berths, *([environment.loader] if environment.loader else [])])


def hub_folders(own: Path | None) -> list[str]:
    """Where the Hub looks for templates, the site's first."""
    return [*([str(own / "hub"), str(own)] if own else []), str(HERE)]


def _hub_environment(own: Path | None) -> Environment:
    """As the Hub makes its own."""
    stock = FileSystemLoader(Path(jupyterhub._data.DATA_FILES_PATH) / "templates")
    loader = ChoiceLoader([PrefixLoader({"templates": stock}), FileSystemLoader(hub_folders(own)), stock])
    return Environment(loader=loader, autoescape=True, enable_async=True, extensions=[HubWords, BerthPages])


# ---- the check at boot -----------------------------------------------------------------------------------------------


def check_templates(file: Path, own: Path) -> None:
    """Compile every template, and look whether it can do anything. Raises `SettingsError`, one line."""
    where = f"{file}: extensions.templates"
    if not own.is_dir():
        raise SettingsError(f"{where}: there is no folder {own}; make it, with a folder hub or service in it")
    found = sorted(path.relative_to(own) for path in own.rglob("*") if path.is_file())
    found = [path for path in found if not any(part.startswith(".") for part in path.parts)]
    strange = next((path for path in found if path.suffix != ".html" or path.parts[0] not in PARTS), None)
    if strange is not None:
        raise SettingsError(
            f"{where}: {strange} is no .html file in one of the folders {', '.join(PARTS)}; move or rename it"
        )
    if not found:
        raise SettingsError(f"{where}: there is no template in {own}; write one, such as hub/page.html")
    pages = {part: [str(Path(*path.parts[1:])) for path in found if path.parts[0] == part] for part in PARTS}
    shared = [f"shared/{name}" for name in pages["shared"]]
    try:
        _Check(_hub_environment(own), _hub_environment(None), "hub", pages["hub"], shared).run()
        strict = _Check(make_environment("UTC", own), make_environment("UTC"), "service", pages["service"], shared)
        strict.run()
        strict.values_exist()
    except _Wrong as wrong:
        raise SettingsError(f"{where}: {wrong}") from None


class _Wrong(Exception):
    """What is wrong with a template, and what to do."""


class _Check:
    """The templates `names` of one part, and the `shared` ones. `environment` finds the site's before `ours`."""

    def __init__(
        self, environment: Environment, ours: Environment, part: str, names: list[str], shared: list[str]
    ) -> None:
        self._environment = environment
        self._ours = ours
        self._ours_named = frozenset(ours.list_templates())
        self._part = part
        self._names = names
        self._shared = shared
        self._parsed: dict[str, nodes.Template] = {}

    def run(self) -> None:
        included = {each for name in (*self._names, *self._shared) for each in self._named(name)}
        for name in (*self._names, *self._shared):
            self._compile(name)
        for name in self._names:
            if name not in included:
                self._replaces_a_page(name)
            self._blocks_exist(name, list(self._ancestors(name)))

    def values_exist(self) -> None:
        """The service's pages are strict: a value that a page is not given is an error, not an empty place."""
        reached = list(self._names)
        for name in reached:
            reached += [each for each in self._named(name) if each in self._shared and each not in reached]
        for name in reached:
            known = {*ALWAYS, *self._environment.globals, "self", "caller"}  # the last two are Jinja's own
            if name in self._ours_named:
                known |= meta.find_undeclared_variables(self._ours.parse(_source(self._ours, name), name))
            strange = sorted(meta.find_undeclared_variables(self._tree(name)) - known)
            if strange:
                there = ", ".join(sorted(ALWAYS))
                raise _Wrong(f"{self._shown(name)} uses {strange[0]!r}, which it is not given; there are {there}")

    # ---- what a template says --------------------------------------------------------------------------------------

    def _shown(self, name: str) -> str:
        """A template as it lies in the folder; Berth's and JupyterHub's own by their names."""
        return f"{self._part}/{name}" if name in self._names else name

    def _tree(self, name: str, by: str = "") -> nodes.Template:
        if name not in self._parsed:
            try:
                self._parsed[name] = self._environment.parse(_source(self._environment, name), name)
            except TemplateNotFound:
                raise _Wrong(f"{by} names {name!r}, which is no template; correct it") from None
            except TemplateSyntaxError as error:
                raise self._syntax(name, error) from None
        return self._parsed[name]

    def _compile(self, name: str) -> None:
        """Jinja itself would find some unknown filters and tests only when the page is shown."""
        self._all_there(name, nodes.Filter, self._environment.filters)
        self._all_there(name, nodes.Test, self._environment.tests)
        try:
            self._environment.compile(_source(self._environment, name), name)
        except TemplateSyntaxError as error:
            raise self._syntax(name, error) from None

    def _all_there(self, name: str, kind: type[nodes.Filter] | type[nodes.Test], known: Collection[str]) -> None:
        for node in self._tree(name).find_all(kind):
            if node.name not in known:
                close = difflib.get_close_matches(node.name, known, n=1)
                remedy = f"did you mean {close[0]!r}?" if close else "correct it"
                word = kind.__name__.lower()
                raise _Wrong(f"{self._shown(name)}, line {node.lineno}: no {word} named {node.name!r}; {remedy}")

    def _syntax(self, name: str, error: TemplateSyntaxError) -> _Wrong:
        return _Wrong(f"{self._shown(name)}, line {error.lineno}: {error.message}; correct it")

    def _named(self, name: str) -> Iterator[str]:
        """What a template extends, includes and imports by a plain name; all of it has to be there."""
        for other in meta.find_referenced_templates(self._tree(name)):
            if other is not None:
                self._tree(other, self._shown(name))
                yield other

    def _ancestors(self, name: str) -> Iterator[str]:
        seen = [name]
        while (parent := self._parent(seen[-1])) is not None:
            if parent in seen:
                own = f'{{% extends "berth/{parent}" %}}'
                raise _Wrong(f"{self._shown(name)} extends itself; write {own} for Berth's own")
            seen.append(parent)
            yield parent

    def _parent(self, name: str) -> str | None:
        constants = [node.template for node in self._tree(name).find_all(nodes.Extends)]
        parent = next((each.value for each in constants if isinstance(each, nodes.Const)), None)
        if parent is not None:
            self._tree(parent, self._shown(name))
        return parent

    # ---- whether it can do anything --------------------------------------------------------------------------------

    def _replaces_a_page(self, name: str) -> None:
        if name in self._ours_named:
            return
        close = difflib.get_close_matches(name, self._ours_named, n=1)
        remedy = f"did you mean {close[0]}?" if close else "include it in another one, or remove it"
        raise _Wrong(f"{self._shown(name)} stands for no page, so nothing shows it; {remedy}")

    def _blocks_exist(self, name: str, ancestors: list[str]) -> None:
        """A block that no ancestor has is shown nowhere."""
        if not ancestors:
            return
        known = {block.name for other in ancestors for block in self._tree(other).find_all(nodes.Block)}
        for node in self._tree(name).body:
            if isinstance(node, nodes.Block) and node.name not in known:
                close = difflib.get_close_matches(node.name, known, n=1)
                remedy = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(sorted(known))}"
                raise _Wrong(
                    f"{self._shown(name)}, line {node.lineno}: {ancestors[0]} has no block {node.name!r}; {remedy}"
                )


def _source(environment: Environment, name: str) -> str:
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]
