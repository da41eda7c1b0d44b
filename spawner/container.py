"""What a server is run with: a pure function from a lease and the Hub's words to one plain `ServerSpec`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from quota.leases import Device, Lease
from spawner.ports import ServerSpec
from spawner.sharing import caps, device_env

#: Secrets of the platform's own processes. They are not on the Hub's list of what servers inherit; should somebody
#: put one there, it still never reaches a server.
SECRETS: Final = frozenset(
    {
        "JUPYTERHUB_CRYPT_KEY",
        "JUPYTERHUB_COOKIE_SECRET",
        "CONFIGPROXY_AUTH_TOKEN",
        "CONFIGPROXY_SSL_KEY_PASSPHRASE",
        "BERTH_DATA",
        "BERTH_HOST",
        "BERTH_DATABASE_URL",
    }
)

#: What a local server inherits from the Hub's process, and nothing else. Proxies stay out: they carry passwords.
INHERITED: Final = (
    "PATH",
    "SHELL",
    "TZ",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "LD_LIBRARY_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "JUPYTERHUB_SINGLEUSER_APP",
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a server runs: the user's home, a folder with Jupyter settings for everybody ("" for none), the URL of
    service `berth` ("" for none), the version of PyTorch there (None when there is none or it is unknown), and a folder
    that is writable though the home is full ("" for none)."""

    home: str
    settings: str = ""
    service_url: str = ""
    torch_version: str | None = None
    runtime: str = ""


def server_spec(
    lease: Lease, argv: Sequence[str], hub_env: Mapping[str, str], devices: Sequence[Device], place: Place
) -> ServerSpec:
    """The server of a lease. `hub_env` is what the Hub gives (its own variables, those inherited, the site's).

    The site's variables may replace the folders of the home; what tells the devices, the share and the lease may
    not be replaced by anybody.
    """
    env = _folders(place)
    env.update((name, value) for name, value in hub_env.items() if name not in SECRETS)
    env.update(_share(lease, devices, place.torch_version))
    env.update(
        BERTH_LEASE=lease.id,
        BERTH_PROFILE=lease.profile,
        BERTH_SIMULATED="1" if lease.simulated else "0",
    )
    if place.service_url:
        env["BERTH_SERVICE_URL"] = place.service_url
    return ServerSpec(lease.id, tuple(argv), env, place.home)


def _folders(place: Place) -> dict[str, str]:
    home = place.home
    env = {
        "HOME": home,
        "JUPYTERHUB_ROOT_DIR": home,
        "JUPYTER_CONFIG_DIR": f"{home}/.jupyter",
        "JUPYTER_DATA_DIR": f"{home}/.local/share/jupyter",
        "JUPYTER_RUNTIME_DIR": place.runtime or f"{home}/.local/share/jupyter/runtime",
        "IPYTHONDIR": f"{home}/.ipython",
    }
    if place.settings:
        env["JUPYTER_CONFIG_PATH"] = place.settings
    return env


def _share(lease: Lease, devices: Sequence[Device], torch_version: str | None) -> dict[str, str]:
    """The devices by UUID, and for a fraction the limits it is asked to keep."""
    known = {device.uuid: device for device in devices}
    held = [known.get(slot.device) for slot in lease.slots if slot.device is not None]
    first = held[0] if held else None
    visible = device_env([replace(slot, device=_named_now(slot.device, known)) for slot in lease.slots])
    if first is not None and first.mode == "mig":
        return visible  # the part is the server's alone: there is nobody to leave anything to
    return {**visible, **caps(lease.share, None if first is None else first.memory_mib, torch_version=torch_version)}


def _named_now(uuid: str | None, known: Mapping[str, Device]) -> str | None:
    """How the driver names a device at present: a part that MIG made has another name after each boot. Raises
    `ValueError` for a part that is not there."""
    if uuid is None or ":" not in uuid:
        return uuid
    device = known.get(uuid)
    if device is None or not device.handle:
        raise ValueError(f"the part {uuid} of a GPU is not there at present; start the server again")
    return device.handle
