"""`[book]` of `berth.toml`: where the book is, and that no password is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from hub_config.book_trouble import trouble
from hub_config.datafolder import BOOK_PASSWORD, DataFolder
from hub_config.settings import Settings, SettingsError, parse
from quota.errors import Reason, Refused


def book(url: str) -> str:
    return f'[book]\nurl = "{url}"\n'


@pytest.mark.parametrize(
    "url",
    [
        "",
        "postgresql://berth@db.example/berth",
        "postgresql+psycopg://berth@db.example:6432/berth?sslmode=verify-full",
        "postgres://berth@/berth?host=/run/postgresql",
        "sqlite:////srv/berth/book.sqlite",
    ],
)
def test_urls_that_are_taken(url: str) -> None:
    assert parse(book(url)).book.url == url


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://berth:geheim@db/berth",
        "postgresql://berth:ge@heim@db/berth",
        "postgresql://berth:@db/berth",
        "postgresql://berth@db/berth?password=geheim",
        "postgresql://berth@db/berth?sslmode=require&PASSWORD=geheim",
    ],
)
def test_a_password_in_the_url_is_refused_with_the_remedy_and_not_told(url: str) -> None:
    with pytest.raises(SettingsError, match=f"book.url: there is a password in it.*{BOOK_PASSWORD}") as caught:
        parse(book(url))
    assert "geheim" not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "toml",
    [
        book("mysql://u@h/geheim"),
        book("sqlite:///geheim.sqlite"),
        book("sqlite:////"),
        book("postgresql://geheim@h"),
        book("postgresql://u@h:geheim/db"),
        book("host=h password=geheim"),
        '[book]\nurl = ["postgresql://u:geheim@h/db"]\n',
        "[book]\nurl = 5\n",
    ],
)
def test_what_is_no_url_of_a_book_is_refused_without_telling_it(toml: str) -> None:
    with pytest.raises(SettingsError, match=r"book\.url: .*postgresql://USER@HOST/DATABASE") as caught:
        parse(toml)
    assert "geheim" not in str(caught.value)


def test_the_book_is_in_the_data_folder_unless_it_is_said(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    assert data.book_url(Settings()) == f"sqlite:///{tmp_path / 'book.sqlite'}"
    elsewhere = parse(book("postgresql://berth@db/berth"))
    assert data.book_url(elsewhere) == "postgresql://berth@db/berth"


def test_the_password_comes_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = DataFolder(tmp_path)
    settings = parse('[book]\nurl = "postgresql://berth@db/berth"\npassword_file = "secret"\n')
    with pytest.raises(SettingsError, match=r"book\.password_file: .*secret cannot be read"):
        data.book_password(settings)
    (tmp_path / "secret").write_text("from a file \n")
    assert data.book_password(settings) == "from a file "
    monkeypatch.setenv(BOOK_PASSWORD, "from the environment")
    assert data.book_password(settings) == "from the environment"
    monkeypatch.delenv(BOOK_PASSWORD)
    assert data.book_password(Settings()) is None


@pytest.mark.parametrize(
    ("why", "remedy"),
    [
        ('FATAL: password authentication failed for user "berth"', "password_file"),
        ("fe_sendauth: no password supplied", "password_file"),
        ('FATAL: database "berth" does not exist', "CREATE DATABASE"),
        ('FATAL: role "berth" does not exist', "CREATE ROLE"),
        ("connection refused", "is the server up"),
        ("unable to open database file", "is the folder there"),
        ("permission denied for table lease", "give the user"),
        ("database disk image is malformed", "berth restore"),
    ],
)
def test_trouble_with_the_book_is_one_line_with_a_remedy(why: str, remedy: str) -> None:
    told = trouble(Refused(Reason.BOOK_UNAVAILABLE, why=why, where="postgresql://berth@db/berth"))
    assert told.startswith("The book (postgresql://berth@db/berth) cannot be used: ")
    assert why.rstrip(".") in told and remedy in told and "\n" not in told
