"""Every word that somebody sees can be said in every language, and is: the code against `quota/locale`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.frontend import parse_mapping_cfg
from babel.messages.pofile import read_po

from hub_config.hosting import IMAGE_TITLES
from images.catalog import LOCAL_IMAGES
from quota import catalogues, i18n, told
from quota.i18n import N_
from tests.fakes.visible import in_python, in_template

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hub_config", "idle_culler", "quota", "spawner")
KEYWORDS: dict[str, tuple[int, ...] | None] = {"_": None, "N_": None, "booked": None, "_n": (1, 2)}
OTHERS = [tag for tag in i18n.LANGUAGES if tag != "en"]
TEMPLATES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("templates/*.html"))]

#: Modules whose texts people read: all of the pages and of REST, and these.
MODULES = [
    *sorted((ROOT / "quota" / "web").glob("*.py")),
    *sorted((ROOT / "quota" / "api").glob("*.py")),
    *(ROOT / "quota" / name for name in ("notices.py", "said.py", "told.py")),
    *(ROOT / "spawner" / f"{name}.py" for name in ("form", "messages", "names", "profiles", "sharing", "start")),
    *(ROOT / "idle_culler" / f"{name}.py" for name in ("decide", "signals")),
    *sorted((ROOT / "hub_config").glob("password_pages.py")),
]

#: Shown as they are in every language, and why. A pattern for the file, and one for the words.
SAME = [
    (r"templates/", r"Berth", "the product's name"),
    (r"templates/", r"container-xxl", "a class"),
    (r"templates/", r"datetime-local", "a kind of field"),
    (r"templates/admin\.html", r"grant|deny", "what a button sends"),
    (r"templates/lease\.html", r"keep:|(no-)?(keep|shutdown|when-done)", "what a button sends"),
    (r"templates/", r"CSV|REST|openapi\.json|\(OpenAPI 3\.1\)", "names of formats"),
    (r"templates/error\.html", r" is pending | is already running|current scopes", "compared with the Hub's own words"),
    (
        r"api/(asked|shapes|document|operation|routes|own|held|kit|kit_farewell|kit_stream|site|groups|wishes|starts|notices|appeals)\.py",
        r".*",
        "the OpenAPI document is English",
    ),
    (
        r"web/(base|app|hub|pages|server|scrape|tracing|metrics)\.py",
        r"Allow|Accept|Lax|Authorization|.*realm=.*",
        "HTTP",
    ),
    (r"web/server\.py", r"[A-Za-z-]+: .*|HTTP/1\.1 .*", "HTTP"),
    (r"web/server\.py", r"This is not a well-formed HTTP request.*", "there is no request, so nobody's language"),
    (r"web/parts\.py", r"Berth|Refused: |sharing mode ", "where the composition root gives no words, as in tests"),
    (r"web/desk\.py", r"no limit", "what may be typed into a form, beside none"),
    (r"web/(metrics|scrape|interface)\.py", r".*", "metrics and the REST document are English"),
    (r"api/base\.py", r"Link", "HTTP"),
    (r"idle_culler/signals\.py", r"no GPU", "a reason for programs; people are told a whole sentence"),
    (r"spawner/start\.py", r"the lease is written by others all the time", "for the log: people are told the reason"),
    (r"password_pages\.py", r"%s has a new password|Somebody signed up.*", "for the log"),
]


def allowed(path: Path, words: str) -> bool:
    name = str(path.relative_to(ROOT))
    return any(re.search(file, name) and re.fullmatch(pattern, words, re.S) for file, pattern, _why in SAME)


@pytest.fixture(scope="module")
def written() -> Catalog:
    """All messages of code and templates."""
    found = Catalog()
    mapping = (ROOT / "babel.cfg").open(encoding="utf-8")
    with mapping:
        methods, options = parse_mapping_cfg(mapping)
    for package in PACKAGES:
        for name, line, message, _comments, context in extract_from_dir(
            ROOT / package, methods, options, keywords=KEYWORDS
        ):
            found.add(message, None, [(f"{package}/{name}", line)], context=context)
    return found


def catalogue(tag: str) -> Catalog:
    path = catalogues.HERE / tag.replace("-", "_") / "LC_MESSAGES" / "berth.po"
    with path.open("rb") as text:
        return read_po(text, locale=tag.replace("-", "_"))


def key(message: str | tuple[str, ...] | list[str]) -> str:
    return message if isinstance(message, str) else message[0]


def test_the_extraction_sees_code_and_templates(written: Catalog) -> None:
    assert {"Receipt", "CPU only", "no code ran"} <= {key(each.id) for each in written}
    places = {name.rpartition(".")[2] for each in written for name, _line in each.locations}
    assert places == {"html", "py"}


@pytest.mark.parametrize("tag", OTHERS)
def test_every_message_is_translated_and_none_is_left_over(written: Catalog, tag: str) -> None:
    there = catalogue(tag)
    wanted, known = {key(each.id) for each in written if each.id}, {key(each.id) for each in there if each.id}
    assert sorted(wanted - known) == [], (
        f"{tag}: not in the catalogue; docs/how-to/languages.md says how they get there"
    )
    assert sorted(known - wanted) == [], f"{tag}: nobody says these any more"
    assert list(there.obsolete) == [], f"{tag}: remove what is commented out"
    blank = [
        each.id for each in there if each.id and not all([each.string] if isinstance(each.id, str) else each.string)
    ]
    assert blank == [], f"{tag}: no translation"
    assert [each.id for each in there if each.id and each.fuzzy] == [], f"{tag}: look at these, then remove the mark"


def places(text: str) -> set[str]:
    return set(re.findall(r"%\(\w+\)s|%%", text))


@pytest.mark.parametrize("tag", OTHERS)
def test_translations_keep_the_places_of_values_and_have_no_markup(tag: str) -> None:
    wrong = []
    for each in catalogue(tag):
        ids = [each.id] if isinstance(each.id, str) else list(each.id)
        strings = [each.string] if isinstance(each.string, str) else list(each.string)
        allowed = places(" ".join(ids))
        if each.id and any(not places(string) >= allowed - {"%(n)s"} or places(string) - allowed for string in strings):
            wrong.append(ids[0])
        if any(re.search(r"[<>]", text) for text in (*ids, *strings) if each.id):
            wrong.append(f"markup: {ids[0]}")
    assert wrong == []


def test_titles_of_images_are_messages() -> None:
    assert {image.title for image in LOCAL_IMAGES.values()} <= set(IMAGE_TITLES)


def test_every_template_speaks_through_its_functions() -> None:
    assert len(TEMPLATES) > 10
    bare = [
        f"{path.relative_to(ROOT)}:{line}: {words}"
        for path in TEMPLATES
        for line, words in in_template(path.read_text(encoding="utf-8"))
        if not allowed(path, words)
    ]
    assert bare == [], "wrap them in _(), or say in SAME why they are the same in every language"


def test_every_module_of_words_speaks_through_its_functions() -> None:
    assert len(MODULES) > 30
    bare = [
        f"{path.relative_to(ROOT)}:{line}: {words}"
        for path in MODULES
        for line, words in in_python(path.read_text(encoding="utf-8"))
        if not allowed(path, words)
    ]
    assert bare == [], "wrap them in _() or N_(), or say in SAME why they are the same in every language"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("<p>Hello there</p>", "Hello there"),
        ("<p>{{ _('Fine') }} and this</p>", "and this"),
        ('<button aria-label="Close it">{{ _("x") }}</button>', "Close it"),
        ('<input placeholder="now: {{ value }}">', "now:"),
        ('{{ "Charged so far" if running else _("Charged") }}', "Charged so far"),
        ('{{ figure("Available", 3) }}', "Available"),
        ('<script>button.text("Cancel the start")</script>', "Cancel the start"),
        ("{% block title %}Tokens{% endblock %}", "Tokens"),
    ],
)
def test_words_that_a_template_does_not_wrap_are_found(source: str, words: str) -> None:
    assert [found for _line, found in in_template(source)] == [words]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('def f():\n    return "over your limit"', "over your limit"),
        ('def f(n):\n    return f"{n} free now"', " free now"),
        ('WORDS = {1: "Idle"}', "Idle"),
        ('def f():\n    log.info("it has begun")\n    return _("not now")', None),
        ('"""Words about this."""\nraise ValueError("no such thing")', None),
    ],
)
def test_words_that_a_module_does_not_wrap_are_found(source: str, words: str | None) -> None:
    assert [found for _line, found in in_python(source)] == ([words] if words else [])


# ---- words of the book -------------------------------------------------------------------------------------------


@pytest.fixture
def chinese(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    path = catalogues.HERE / "zh_CN" / "LC_MESSAGES" / "berth.po"
    monkeypatch.setitem(i18n._catalogues, "zh-CN", catalogues.read(path))
    with i18n.speaking("zh-CN"):
        yield


@pytest.mark.parametrize(
    ("english", "wanted"),
    [
        (
            "Not used since 09:05 UTC (26 min): no code ran, its programs used at most 5 % of a CPU core, its GPU is "
            "simulated and tells nothing; servers with a GPU are stopped after 30 min without use (idle.with_gpu)",
            "自 09:05 UTC 起未使用（26 分钟）：没有代码在运行，其程序最多占用一个 CPU 核的 5 %，"
            "其 GPU 是模拟的，没有读数；"
            "带 GPU 的服务器闲置 30 分钟后停止（idle.with_gpu）",
        ),
        ("In use: its GPU is at 97 %", "使用中：其 GPU 利用率为 97 %"),
        ("the credit of ada is used up", "ada 的积分已用完"),
        ("exit code 137", "退出码 137"),
        ("what a site's own rule says", "what a site's own rule says"),
        ("", ""),
    ],
)
def test_words_of_the_book_are_told_again(chinese: None, english: str, wanted: str) -> None:
    assert told.retold(english) == wanted


def test_the_book_s_own_words_in_its_own_language() -> None:
    assert told.retold("exit code 137") == "exit code 137"


def test_every_message_of_the_book_is_found_in_what_is_written(chinese: None) -> None:
    """Each is filled in as its writer does, and told again by its own translation."""
    for message in told._MESSAGES:
        names = re.findall(r"%\((\w+)\)s", message)
        values = {name: "7" if name in told._NUMBERS else "Zz" for name in names}
        english = message % values if "%" in message else message
        assert told.retold(english) == i18n._(N_(message), **values), message
