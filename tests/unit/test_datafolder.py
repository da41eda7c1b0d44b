"""The data folder: private, made once, kept."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from hub_config.datafolder import DataFolder
from hub_config.settings import Settings, SettingsError


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    folder = DataFolder(tmp_path / "data")
    folder.make()
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_and_secrets_are_private(data: DataFolder) -> None:
    data.passwords()
    data.secret("proxy")
    assert {mode(folder) for folder in (data.root, data.homes, data.runs, data.secrets, data.logs)} == {0o700}
    assert {mode(file) for file in data.secrets.iterdir()} == {0o600}


def test_passwords_are_random_long_enough_and_kept(data: DataFolder, tmp_path: Path) -> None:
    logins = data.passwords()
    other = DataFolder(tmp_path / "other")
    other.make()
    assert logins == data.passwords()
    assert logins["admin"]["password"] != other.passwords()["admin"]["password"]
    assert len(logins["admin"]["password"]) >= 32
    assert len(logins["researcher"]["password"]) >= 8
    assert (logins["admin"]["name"], logins["researcher"]["name"]) == ("admin", "researcher")


def test_a_secret_is_made_once(data: DataFolder) -> None:
    assert data.secret("a") == data.secret("a") != data.secret("b")


def test_settings_are_written_once_and_never_overwritten(data: DataFolder) -> None:
    assert data.settings() == Settings()
    data.settings_file.write_text("[gpus]\nsimulated = 1\n")
    data.make()
    assert data.settings().gpus.simulated == 1


def test_unreadable_settings_give_one_line(data: DataFolder) -> None:
    data.settings_file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match=r"berth\.toml: cannot be read"):
        data.settings()


def test_a_renamed_machine_keeps_its_name_in_the_book(data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    first = data.host()
    monkeypatch.setattr("socket.gethostname", lambda: "renamed")
    assert data.host() == first != "renamed"
