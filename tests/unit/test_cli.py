"""The command line: what it refuses, with which code, in which words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hub_config.cli import main
from hub_config.datafolder import DataFolder
from hub_config.screen import call_of


@pytest.fixture
def data(tmp_path: Path) -> Path:
    DataFolder(tmp_path / "data").make()
    return tmp_path / "data"


def test_another_host_is_refused_with_the_reason(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--data", str(data), "--host", "0.0.0.0"]) == 2
    words = capsys.readouterr().err
    assert "loopback" in words and "--host 127.0.0.1" in words and words.count("\n") == 1


def test_broken_settings_are_one_line_and_usage(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "berth.toml").write_text("[gpus]\nsimulatd = 2\n")
    assert main(["up", "--data", str(data)]) == 2
    words = capsys.readouterr().err
    assert "berth.toml" in words and "gpus.simulatd" in words and "did you mean 'simulated'" in words
    assert words.count("\n") == 1


@pytest.mark.parametrize("port", ["0", "70000", "x", "-1"])
def test_a_port_that_is_none_is_usage(port: str, data: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["up", "--data", str(data), "--port", port])
    assert ended.value.code == 2


def test_passwords_as_json_while_it_is_down(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["passwords", "--json", "--data", str(data)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["url"] is None
    assert set(found) == {"url", "admin", "researcher"}
    assert set(found["admin"]) == {"name", "password"}


@pytest.mark.parametrize("command", ["passwords", "status"])
def test_a_folder_that_is_none_is_told_and_not_made(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--data", str(tmp_path / "nowhere")]) == 2
    assert "berth up --data" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def test_a_call_is_shown_as_its_reader_can_type_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["/usr/bin/berth", "up"])
    assert call_of("passwords", tmp_path / "berth-data") == "berth passwords"
    assert call_of("passwords", tmp_path / "other") == f"berth passwords --data {tmp_path / 'other'}"
    monkeypatch.setattr("sys.argv", ["/a/checkout/hub_config/__main__.py", "up"])
    assert call_of("passwords", tmp_path / "berth-data") == "./berth passwords"


def test_status_of_what_is_down_is_a_finding(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--json", "--data", str(data)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["up"] is False
    assert found["leases"] == []
    assert "berth up" in found["findings"][0]


@pytest.mark.parametrize("amount", ["0", "-5", "x", "1e400", "nan", "0.0000001"])
def test_a_grant_that_is_none_is_usage(amount: str, data: Path) -> None:
    try:
        assert main(["grant", "alice", "--data", str(data), "--create", "--", amount]) == 2
    except SystemExit as ended:  # argparse's own refusal of an odd argument
        assert ended.code == 2


def test_grant_creates_adds_and_is_idempotent_by_key(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grant", "alice", "5", "--data", str(data)]) == 1
    assert "--create" in capsys.readouterr().err
    for _ in range(2):
        assert main(["grant", "alice", "12.5", "--data", str(data), "--create", "--key", "prize", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["available"] == 112_500_000


def test_a_data_folder_that_is_a_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        assert main(["up", "--data", str(folder)]) == 1
        words = capsys.readouterr().err
        assert str(folder) in words and "--data" in words and words.count("\n") == 1


def test_extra_config_that_is_not_there_is_one_line_and_usage(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "berth.toml").write_text('[hub]\nextra_config = "missing.py"\n')
    assert main(["up", "--data", str(data)]) == 2
    words = capsys.readouterr().err
    assert "berth.toml" in words and "hub.extra_config" in words and "missing.py" in words and words.count("\n") == 1


@pytest.mark.parametrize("name", ["", "*", "a b", "a`b", "../x", "Capital"])
def test_grant_makes_no_account_that_could_never_log_in(
    name: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["grant", name, "5", "--data", str(data), "--create"]) == 2
    assert "user name" in capsys.readouterr().err
    assert main(["grant", name, "5", "--data", str(data)]) == 1  # and there is none now


def test_a_grant_that_has_expired_already_is_usage(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grant", "alice", "5", "--data", str(data), "--create", "--expires", "2020-01-01"]) == 2
    assert "has passed" in capsys.readouterr().err
