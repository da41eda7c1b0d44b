"""Finds words that somebody sees and nobody can translate: in templates, in their scripts, and in Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from html.parser import HTMLParser

from jinja2 import Environment, nodes

MARKERS = ("_", "_n", "N_", "booked")
#: What stands for `{{ … }}` and for a block while the rest of a template is read as HTML.
_VALUE, _BLOCK = "\ue000", "\ue001"
_SEEN = ("alt", "aria-label", "content", "data-label", "placeholder", "title", "value")
_LETTERS = re.compile(r"[A-Za-z]{2,}")
_SPOKEN_BY_SCRIPTS = re.compile(r"""(?:\.text\(|textContent\s*=|alert\(|confirm\()\s*(["'])(?P<words>.*?)\1""")
#: Two words, or one with a capital: what a key, a class or an address is not.
_WORDS = re.compile(r"[A-Za-z]{2,}[,:;]? [A-Za-z]|^[A-Z][a-z]+[.:]?$|^[A-Z][a-z]+ ")

Found = Iterator[tuple[int, str]]


def in_template(source: str) -> Found:
    """Line and words of what a template shows without `_()`."""
    environment = Environment(extensions=["jinja2.ext.do"])
    yield from _in_markup(environment, source)
    yield from _in_expressions(environment.parse(source))


def _in_markup(environment: Environment, source: str) -> Found:
    page = ""
    for _line, kind, text in environment.lex(source):
        if kind == "variable_begin":
            page += _VALUE
        elif kind == "block_begin":
            page += _BLOCK
        elif kind == "data":
            page += text
    reader = _Reader()
    reader.feed(page)
    reader.close()
    yield from reader.found


class _Reader(HTMLParser):
    """Text between tags, and attributes that are read out or shown."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[int, str]] = []
        self._raw = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "style"):
            self._raw = tag
        for name, value in attrs:
            shown = name in _SEEN and not (
                name == "value" and (given.get("type") or "text") not in ("submit", "button")
            )
            if shown and not (name == "content" and given.get("name") != "description"):
                self._take(value or "")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._raw:
            self._raw = ""

    def handle_data(self, data: str) -> None:
        if self._raw == "style":
            return
        if self._raw == "script":
            for match in _SPOKEN_BY_SCRIPTS.finditer(data):
                self._take(match["words"])
            return
        self._take(data)

    def _take(self, text: str) -> None:
        for part in re.split(f"[{_VALUE}{_BLOCK}]", text):
            if _LETTERS.search(part):
                self.found.append((self.getpos()[0], " ".join(part.split())))


def _in_expressions(template: nodes.Template) -> Found:
    for node in _outside_of_marks(template):
        if isinstance(node, nodes.Const) and isinstance(node.value, str) and _WORDS.search(node.value.strip()):
            yield node.lineno, node.value


def _outside_of_marks(node: nodes.Node) -> Iterator[nodes.Node]:
    for child in node.iter_child_nodes():
        marked = isinstance(child, nodes.Call) and isinstance(child.node, nodes.Name) and child.node.name in MARKERS
        if marked:
            for value in child.kwargs:
                yield from _outside_of_marks(value)
            continue
        yield child
        yield from _outside_of_marks(child)


# ---- Python ------------------------------------------------------------------------------------------------------

#: Calls whose texts are for logs, programs or whoever reads the code.
_UNSEEN = ("log", "logging", "re", "TypeVar", "NewType", "ContextVar", "getLogger", "run", "extra_static_config")


def in_python(source: str) -> Found:
    """Line and words of texts of a module that are neither marked nor for logs."""
    tree = ast.parse(source)
    skipped = {id(node) for each in ast.walk(tree) for node in _not_shown(each)}
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _WORDS.search(node.value.strip()):
            yield node.lineno, node.value
        stack.extend(ast.iter_child_nodes(node))


def _not_shown(node: ast.AST) -> Iterator[ast.AST]:
    """Parts of a node in which no word is looked for."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr):
            yield first
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node
    if isinstance(node, ast.AnnAssign):
        yield node.annotation
    if isinstance(node, ast.Compare):
        yield node
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and _name(node.exc.func) in _FAULTS:
        yield node
    if isinstance(node, ast.Call):
        name = _name(node.func)
        if name in MARKERS:
            yield from node.args
        if name in _UNSEEN or _root(node.func) in _UNSEEN:
            yield node
        if name in ("startswith", "endswith", "removesuffix", "removeprefix", "partition", "strptime", "set_header"):
            yield node


#: Errors that mean a fault of the code or of a settings file, never an answer to a reader.
_FAULTS = (
    "ValueError",
    "TypeError",
    "RuntimeError",
    "AssertionError",
    "NotImplementedError",
    "KeyError",
    "HubUnavailable",
)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
