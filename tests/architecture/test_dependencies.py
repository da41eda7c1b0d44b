"""What we stand on: declared, bounded, of known licences, from the index, and consistent with itself."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.source import KIT, OURS, ROOT, imports, is_standard, package_files

#: Distributions of ours.
OWN = {"berth", "berth-lab"}

#: Licences under which we ship and run others' work; patterns in what a distribution says of itself. Copyleft of whole
#: programs (GPL, AGPL) is not among them.
LICENCES = re.compile(
    r"(?i)\b(BSD|MIT|MIT-0|Apache|PSF|PSFL|Python Software Foundation|ISC|Unlicense|Zlib|HPND|MPL[- ]2\.0|"
    r"Mozilla Public License 2\.0|LGPL|Lesser General Public|LGPL-3\.0-only|0BSD|CC0)\b"
)
FORBIDDEN = re.compile(
    r"(?i)(?<!L)(?<!Lesser )\b(AGPL|GPL|Affero)|(?<!Lesser )General Public License|proprietary|SSPL|BUSL"
)


def setup_cfg() -> ConfigParser:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    return setup


def direct() -> dict[str, list[Requirement]]:
    """What we ask for ourselves: the distribution's own needs, each extra's, and the kit's."""
    setup = setup_cfg()
    found = {"berth": setup.get("options", "install_requires").strip().splitlines()}
    for extra, text in setup.items("options.extras_require"):
        found[f"berth[{extra}]"] = text.strip().splitlines()
    kit = tomllib.loads((ROOT / "images/lab/pyproject.toml").read_text(encoding="utf-8"))
    found["berth-lab"] = kit["project"]["dependencies"]
    return {owner: [Requirement(line) for line in lines] for owner, lines in found.items()}


@cache
def closure() -> dict[str, Distribution]:
    """Everything that is there at run time, by canonical name: what we ask for, and what that asks for."""
    found: dict[str, Distribution] = {}
    asked = [(each.name, frozenset(each.extras)) for owner in ("berth", "berth-lab") for each in direct()[owner]]
    seen = set()
    while asked:
        name, extras = asked.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            found[canonicalize_name(name)] = distribution(name)
        except PackageNotFoundError:
            continue  # `pip check` tells
        for line in distribution(name).requires or ():
            need = Requirement(line)
            wanted = need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras | {""})
            if wanted:
                asked.append((need.name, frozenset(need.extras)))
    return found


def test_what_is_installed_fits_together() -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("owner", ["berth", "berth[test]", "berth[examples]", "berth-lab"])
def test_every_direct_need_has_a_lowest_and_a_highest_version(owner: str) -> None:
    for need in direct()[owner]:
        operators = {each.operator for each in need.specifier}
        assert ">=" in operators and "<" in operators, f"{owner}: {need}"
        assert need.url is None, f"{owner}: {need} comes from an address of its own"


def test_nothing_but_ours_was_installed_from_an_address() -> None:
    """An editable or direct install would be no version that anybody else could get."""
    odd = [name for name, found in closure().items() if found.read_text("direct_url.json") and name not in OWN]
    assert not odd


def licence(found: Distribution) -> str:
    """All that a distribution says of its licence: SPDX expression, classifiers, the field, else the text itself."""
    metadata = found.metadata
    said = [metadata.get("License-Expression") or "", (metadata.get("License") or "")[:200]]
    said += [line for line in metadata.get_all("Classifier") or () if line.startswith("License")]
    if not "".join(said).strip().removeprefix("UNKNOWN"):
        texts = [path for path in found.files or () if "license" in path.name.lower() or "copying" in path.name.lower()]
        said += [path.read_text()[:300] for path in texts if path.suffix in ("", ".txt", ".md", ".rst")]
    return " ".join(said)


def test_every_licence_is_one_that_we_know() -> None:
    assert len(closure()) > 60
    unknown = {name: licence(found)[:80] for name, found in closure().items() if not LICENCES.search(licence(found))}
    assert not unknown
    for name, found in closure().items():
        assert not FORBIDDEN.search(licence(found)), (name, licence(found)[:120])


@pytest.mark.parametrize(
    "text", ["GPL-3.0-or-later", "License :: OSI Approved :: GNU General Public License v3", "AGPL-3.0"]
)
def test_the_search_for_licences_has_teeth(text: str) -> None:
    assert FORBIDDEN.search(text)
    assert not FORBIDDEN.search("GNU Lesser General Public License v3 (LGPLv3) LGPL-3.0-only")


def test_no_import_at_run_time_lacks_its_declaration() -> None:
    """What is imported is asked for by name, and not found by luck behind something else."""
    owners = {top: {canonicalize_name(name) for name in names} for top, names in packages_distributions().items()}
    needs = {owner: {canonicalize_name(each.name) for each in direct()[owner]} for owner in ("berth", "berth-lab")}
    undeclared: dict[str, set[str]] = {}
    for relative in package_files():
        mine = needs["berth-lab"] if f"/{KIT}/" in relative else needs["berth"]
        for top in {each.top for each in imports(relative)} - set(OURS):
            declared = is_standard(top) or top in OPTIONAL or owners.get(top, set()) & mine
            if not declared and (relative.rpartition("/")[2], top) not in BROUGHT:
                undeclared.setdefault(top, set()).add(relative)
    assert not undeclared


#: Imported only where it is there: the kit caps a framework that a user has, and builds itself with its tool.
OPTIONAL = {"torch", "tensorflow", "docker", "setuptools", "IPython", "jupyterlab", "ipykernel"}
#: Brought by what we ask for, whose own interface it is: pydantic's core, the Hub's own words.
BROUGHT = {("settings.py", "pydantic_core")}


def test_no_wrapper_that_its_maker_has_given_up_is_there() -> None:
    """Names on the index that pretend to be something else, or that ended: `pynvml` is nvidia-ml-py's module."""
    given_up = {"pynvml", "jupyterhub-dummyauthenticator", "sklearn", "python-jose", "pycrypto", "imp"}
    assert not given_up & set(closure())
