"""A backup keeps the files that `[extensions]` names, and a restore brings these back and nothing else."""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from hub_config import backup
from hub_config.cli import main
from hub_config.compose import check_extensions, parts
from hub_config.datafolder import DataFolder
from tests.fakes.backups import EMPTY, entry, refused, rewritten

EXAMPLE = Path(__file__).parents[2] / "examples" / "site"
FILES = {
    "site_mail.py",
    "site_rules.py",
    "templates/hub/page.html",
    "templates/service/base.html",
    "templates/shared/support.html",
}


def new_site(root: Path, toml: str = "") -> Path:
    """A data folder with a book, and the example's files where no other settings are given."""
    DataFolder(root).make()
    if toml:
        (root / "berth.toml").write_text(toml, encoding="utf-8")
    else:
        shutil.copytree(EXAMPLE, root, dirs_exist_ok=True)
    made = parts(root)
    made.store.migrate()
    made.store.close()
    return root


def kept(file: Path) -> set[str]:
    with tarfile.open(file) as archive:
        return {name.removeprefix("site/") for name in archive.getnames() if name.startswith("site/")}


def manifest_of(file: Path) -> dict[str, Any]:
    with tarfile.open(file) as archive:
        found: dict[str, Any] = json.loads(archive.extractfile("manifest.json").read())  # type: ignore[union-attr]
    return found


def test_the_examples_files_are_kept_and_come_back(tmp_path: Path) -> None:
    site, file, new = new_site(tmp_path / "old"), tmp_path / "berth.backup", tmp_path / "new"
    (site / "templates" / ".hidden.html").write_text("no")
    (site / "__pycache__").mkdir(exist_ok=True)
    (site / "notes.txt").write_text("nobody names it")
    assert main(["backup", str(file), "--data", str(site)]) == 0
    assert kept(file) == FILES and manifest_of(file)["format"] == 2
    assert main(["restore", str(file), "--data", str(new)]) == 0
    for name in FILES:
        assert (new / name).read_bytes() == (site / name).read_bytes()
        assert stat.S_IMODE((new / name).stat().st_mode) == 0o600
    check_extensions(parts(new))
    assert not (new / "notes.txt").exists()


def test_a_package_and_what_cannot_be_kept(tmp_path: Path) -> None:
    toml = '[extensions]\nplacement = "site_pack.rules:place"\nnotify = "json:dumps"\ntemplates = "a/b"\n'
    site, file = new_site(tmp_path / "data", toml), tmp_path / "berth.backup"
    for name in (
        "site_pack/__init__.py",
        "site_pack/rules.py",
        "site_pack/racks.csv",
        "a/b/hub/404.html",
        "a/other.html",
    ):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(name)
    (site / "a/b/hub/ü.html").write_text("x")
    (site / "site_pack/passwd").symlink_to("/etc/passwd")
    assert main(["backup", str(file), "--data", str(site)]) == 0
    assert kept(file) == {"site_pack/__init__.py", "site_pack/rules.py", "site_pack/racks.csv", "a/b/hub/404.html"}
    told = "; ".join(manifest_of(file)["left_out"])
    for words in (
        "the module json (extensions.notify), which is not beside",
        "a/b/hub/ü.html, which",
        "site_pack/passwd, which",
    ):
        assert words in told


def test_a_site_without_extensions_makes_a_backup_that_older_berths_read(tmp_path: Path) -> None:
    file = tmp_path / "berth.backup"
    assert main(["backup", str(file), "--data", str(new_site(tmp_path / "data", "[hub]\n"))]) == 0
    assert manifest_of(file)["format"] == 1


def test_what_is_there_goes_aside_with_its_whole_folder(tmp_path: Path) -> None:
    site, file = new_site(tmp_path / "data"), tmp_path / "berth.backup"
    assert main(["backup", str(file), "--data", str(site)]) == 0
    (site / "templates/hub/404.html").write_text("newer")
    (site / "site_rules.py").write_text("newer = 1\n")
    assert main(["restore", str(file), "--data", str(site)]) == 1
    assert (site / "site_rules.py").read_text() == "newer = 1\n"
    assert main(["restore", str(file), "--data", str(site), "--force"]) == 0
    assert not (site / "templates/hub/404.html").exists()
    assert (site / "site_rules.py").read_bytes() == (EXAMPLE / "site_rules.py").read_bytes()
    (aside,) = site.glob("before-restore-*")
    assert (aside / "templates/hub/404.html").read_text() == "newer"
    assert (aside / "site_rules.py").read_text() == "newer = 1\n"


def test_kept_settings_bring_back_what_they_name(tmp_path: Path) -> None:
    file, new = tmp_path / "berth.backup", tmp_path / "new"
    assert main(["backup", str(file), "--data", str(new_site(tmp_path / "old"))]) == 0
    new.mkdir()
    (new / "berth.toml").write_text('[extensions]\nprice = "site_rules:price"\n')
    assert main(["restore", str(file), "--data", str(new), "--keep-settings"]) == 0
    assert (new / "site_rules.py").exists()
    assert not (new / "site_mail.py").exists() and not (new / "templates").exists()


# ---- files that are no good ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    assert main(["backup", str(folder / "berth.backup"), "--data", str(new_site(folder / "data"))]) == 0
    return folder / "berth.backup"


@pytest.fixture
def file(good: Path, tmp_path: Path) -> Path:
    return shutil.copy(good, tmp_path / "berth.backup")


@pytest.mark.parametrize(
    "name",
    [
        "site/../evil.py",
        "site//etc/evil.py",
        "site/.ssh/x",
        "site/templates/../../evil",
        "site/a\nb",
        "site/" + "/".join("abcdefghi"),
        "site/",
        "site",
        "site/site_rules.py/below",  # a file of the backup as a folder
    ],
)
def test_a_name_that_no_file_of_a_site_has_is_refused(
    name: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewritten(
        file, lambda manifest, members: (manifest["members"].update({name: EMPTY}), members.append(entry(name)))[1]
    )
    assert "damaged or no backup" in refused(file, tmp_path / "new", capsys)
    assert not (tmp_path / "evil.py").exists() and not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "name",
    ["sitecustomize.py", "secrets/jupyterhub_cookie_secret", "book.sqlite", "site_rules.txt", "site_other.py", "host"],
)
def test_a_file_that_the_settings_do_not_name_is_refused(
    name: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    member = f"site/{name}"

    def add(manifest: dict[str, Any], members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        manifest["members"][member] = EMPTY
        members.append(entry(member))

    rewritten(file, add)
    assert f"{name!r}, which its settings do not name" in refused(file, tmp_path / "new", capsys)


@pytest.mark.parametrize("templates", ["secrets", "host", "book.sqlite", "logs/x"])
def test_settings_that_would_make_berths_own_folders_the_sites_are_refused(
    templates: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toml = f'[extensions]\ntemplates = "{templates}"\n'.encode()

    def change(manifest: dict[str, Any], members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        at = next(number for number, (each, _) in enumerate(members) if each.name == backup.SETTINGS)
        made = tarfile.TarInfo(backup.SETTINGS)
        made.size = len(toml)
        members[at] = (made, toml)
        manifest["members"][backup.SETTINGS] = {"size": len(toml), "sha256": hashlib.sha256(toml).hexdigest()}

    rewritten(file, change)
    assert main(["restore", str(file), "--data", str(tmp_path / "new")]) == 2
    assert "extensions.templates" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["up.lock"]
