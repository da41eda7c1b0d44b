"""Every configuration key that we ship is a real one: a misspelt or outdated key would be ignored in silence."""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from IPython.core.shellapp import InteractiveShellApp
from jupyter_server.serverapp import ServerApp
from jupyterhub.app import JupyterHub
from jupyterhub.crypto import CryptKeeper
from jupyterhub.metrics import PeriodicMetricsCollector
from jupyterhub.scopes import scope_definitions
from jupyterhub.services.service import Service
from traitlets import HasTraits
from traitlets.config import Config, Configurable, JSONFileConfigLoader, LazyConfigValue, PyFileConfigLoader

from hub_config import auth_presets, jupyterhub_config, roles
from hub_config.compose import Parts
from hub_config.datafolder import DataFolder
from hub_config.ports import Ports
from hub_config.settings import Settings, parse
from spawner.homes import settings_folder
from tests.architecture.source import ROOT

#: `[auth]` of each way to log in.
WAYS = {
    "trial": "",
    "passwords": "",
    "pam": 'people = "all"\nadmins = ["a"]',
    "ldap": 'server = "ldaps://ldap.example"\nuser_base = "dc=example"\nadmins = ["a"]',
    "oidc": 'issuer = "https://id.example"\nclient_id = "b"\nsecret_file = "s"\nadmins = ["a"]\nurl = "https://x.example"',
    "github": 'client_id = "b"\nsecret_file = "s"\nadmins = ["a"]\n[[auth.groups]]\nid = 7\nadmin = true',
    "gitlab": 'issuer = "https://git.example"\nclient_id = "b"\nsecret_file = "s"\nadmins = ["a"]',
    "google": 'client_id = "b"\nsecret_file = "s"\nadmins = ["a"]\ndomains = ["uni.example"]',
}


@pytest.fixture(scope="module", params=WAYS)
def shipped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """The configuration as the Hub would load it from a fresh data folder, for each way to log in."""
    data = DataFolder(tmp_path_factory.mktemp("shipped") / "data")
    data.make()
    (data.root / "s").write_text("secret", encoding="utf-8")
    ends = {f"{name}_endpoint": f"https://id.example/{name}" for name in ("authorization", "token", "userinfo")}
    data.provider_file.write_text(json.dumps({"issuer": "https://id.example", **ends}), encoding="utf-8")
    settings = parse(f'[auth]\nkind = "{request.param}"\n{WAYS[request.param]}')
    config = Config()
    jupyterhub_config.configure(config, Parts(data, settings), Ports(8000, 8081, 8082, 8083), "127.0.0.1", "hub-0")
    return config


def test_every_way_to_log_in_is_looked_at() -> None:
    assert set(WAYS) == set(auth_presets.PRESETS)


@pytest.mark.parametrize(
    ("host", "url"), [("127.0.0.1", "http://127.0.0.1:8000"), ("::1", "http://[::1]:8000")], ids=["IPv4", "IPv6"]
)
def test_every_loopback_address_makes_an_address_to_listen_at(host: str, url: str, tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data")
    data.make()
    config = Config()
    jupyterhub_config.configure_hub(config, Parts(data, Settings()), Ports(8000, 8081, 8082, 8083), host)
    assert config.JupyterHub.bind_url == url


def configurables(config: Config) -> dict[str, type[HasTraits]]:
    """The classes whose sections the Hub reads with this configuration, by name."""
    chosen = [config.JupyterHub.proxy_class, config.JupyterHub.authenticator_class, config.JupyterHub.spawner_class]
    found: dict[str, type[HasTraits]] = {}
    for chosen_class in (JupyterHub, PeriodicMetricsCollector, CryptKeeper, *chosen):
        for base in inspect.getmro(chosen_class):
            if issubclass(base, Configurable):
                found[base.__name__] = base
    return found


def settings_of(config: Config) -> list[tuple[str, str, Any]]:
    return [(section, key, value) for section, keys in config.items() for key, value in keys.items()]


def test_x27_every_section_is_read_and_every_key_is_a_trait(shipped: Config) -> None:
    classes = configurables(shipped)
    unread = sorted(section for section in shipped if section not in classes)
    assert not unread, f"nothing reads these sections: {unread}"
    unknown = [f"{s}.{k}" for s, k, _ in settings_of(shipped) if k not in classes[s].class_traits(config=True)]
    assert not unknown, f"no such configurable traits: {unknown}"


def test_x27_every_value_is_taken(shipped: Config) -> None:
    classes = configurables(shipped)
    for section, key, value in settings_of(shipped):
        trait = classes[section].class_traits()[key]
        if isinstance(value, LazyConfigValue):  # several parts of the configuration add to one setting
            value = value.get_value(trait.default(HasTraits()))
        if hasattr(trait, "validate"):
            trait.validate(HasTraits(), value)  # raises TraitError


def test_x27_every_key_of_a_service_is_one(shipped: Config) -> None:
    """The Hub passes over unknown keys of a service without a word."""
    known = set(Service.class_traits())
    for service in shipped.JupyterHub.services:
        assert set(service) <= known, service


def test_x27_every_scope_exists() -> None:
    known = {*scope_definitions, *roles.CUSTOM_SCOPES}
    asked = {*roles.USER_SCOPES, *roles.SERVER_SCOPES, *(scope for role in roles.ROLES for scope in role["scopes"])}
    assert not {scope.partition("!")[0] for scope in asked} - known


SERVER_CLASSES = {
    each.__name__: each
    for chosen in (ServerApp, InteractiveShellApp)
    for each in inspect.getmro(chosen)
    if issubclass(each, Configurable)
}


@pytest.mark.parametrize("name", ["berth_lab.json", "ipython_config.py"])
def test_x27_every_key_that_a_notebook_server_is_given_is_a_trait(name: str) -> None:
    """They are read in the users' servers, where a key that nothing reads is passed over without a word too."""
    loader = JSONFileConfigLoader if name.endswith(".json") else PyFileConfigLoader
    settings = settings_of(loader(name, str(ROOT / "images" / "lab" / "etc")).load_config())
    assert settings
    for section, key, _ in settings:
        assert key in SERVER_CLASSES[section].class_traits(config=True), f"{section}.{key}"


def test_x27_every_setting_of_jupyterlab_is_one_of_its_plugins() -> None:
    text = (settings_folder() / "labconfig" / "default_setting_overrides.json").read_text(encoding="utf-8")
    schemas = Path(sys.prefix) / "share" / "jupyter" / "lab" / "schemas"
    for plugin, settings in json.loads(text).items():
        extension, _, name = plugin.partition(":")
        schema = json.loads((schemas / extension / f"{name}.json").read_text(encoding="utf-8"))
        assert set(settings) <= set(schema["properties"]), plugin


def test_x27_the_search_has_teeth(shipped: Config) -> None:
    wrong = Config(shipped)
    wrong.NotebookApp.shutdown_no_activity_timeout = 60
    assert "NotebookApp" not in configurables(wrong)


def test_the_templates_are_where_the_hub_looks(shipped: Config) -> None:
    (folder,) = shipped.JupyterHub.template_paths
    assert sorted(path.name for path in Path(folder).glob("*.html"))
