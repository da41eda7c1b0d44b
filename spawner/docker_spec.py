"""A server's container in the Engine's own words: the body of `POST /containers/create`, and whether what came out of
it is what was asked for. Pure.

Hardened by default, and what hardens goes before anything the site adds: no new privileges, no capabilities, never
privileged, no namespace of the host, no socket of the Engine, limits on processes, memory and log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from spawner.box import MIB, Box, Mount
from spawner.ports import ServerSpec

#: Paths of the host that nobody's server may see: whoever writes to such a socket is root on the host.
SOCKETS: Final = (
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
)
#: dockerspawner takes docker-py's words for keys of HostConfig.
ENGINE_WORDS: Final[Mapping[str, str]] = {
    "privileged": "Privileged",
    "cap_add": "CapAdd",
    "devices": "Devices",
    "device_requests": "DeviceRequests",
    "pid_mode": "PidMode",
    "ipc_mode": "IpcMode",
    "userns_mode": "UsernsMode",
    "network_mode": "NetworkMode",
    "security_opt": "SecurityOpt",
    "binds": "Binds",
    "mounts": "Mounts",
    "tmpfs": "Tmpfs",
    "dns": "Dns",
    "dns_search": "DnsSearch",
    "extra_hosts": "ExtraHosts",
    "ulimits": "Ulimits",
    "group_add": "GroupAdd",
    "sysctls": "Sysctls",
    "read_only": "ReadonlyRootfs",
    "oom_score_adj": "OomScoreAdj",
    "cpuset_cpus": "CpusetCpus",
    "cpu_shares": "CpuShares",
    "storage_opt": "StorageOpt",
    "runtime": "Runtime",
}
#: Keys of HostConfig that would undo what keeps a server in its container, with the values that may stand.
_HARMLESS: Final[Mapping[str, tuple[object, ...]]] = {
    "Privileged": (False, None),
    "CapAdd": (None, [], ()),
    "PidMode": ("", None),
    "UsernsMode": ("", None, "private"),
    "IpcMode": ("", None, "private", "none"),
    "CgroupnsMode": ("", None, "private"),
    "Devices": (None, [], ()),
    "DeviceRequests": (None, [], ()),
    "DeviceCgroupRules": (None, [], ()),
}


def create_body(spec: ServerSpec) -> dict[str, Any]:
    """The body of the request that creates the container of a spec. Raises `ValueError`, in words for an
    administrator, where what the site adds would undo what keeps users apart."""
    box = spec.box
    if box is None:
        raise ValueError(f"lease {spec.lease_id} names no container")
    wrong = fault({**box.host_config, "Binds": [*_list(box.host_config.get("Binds")), *_folders(box)]})
    if wrong:
        raise ValueError(wrong)
    return {
        **box.config,
        "Image": box.image,
        **({"Cmd": list(spec.argv)} if spec.argv else {}),
        "Env": [f"{name}={value}" for name, value in sorted(spec.env.items())],
        "User": box.user,
        "WorkingDir": spec.cwd,
        "Labels": {**_labels(box.config), **box.labels},
        "HostConfig": host_config(box),
    }


def _folders(box: Box) -> list[str]:
    return [mount.source for mount in box.mounts if mount.kind == "bind"]


def _labels(config: Mapping[str, object]) -> dict[str, str]:
    labels = config.get("Labels")
    return {str(name): str(value) for name, value in labels.items()} if isinstance(labels, Mapping) else {}


def host_config(box: Box) -> dict[str, Any]:
    """`HostConfig` of a box."""
    ours: dict[str, Any] = {
        "NetworkMode": box.network,
        "Init": True,  # the server is no init: it does not reap what kernels leave behind
        "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0},  # a stale device id must not come up by itself
        "Privileged": False,
        "CapDrop": ["ALL"],
        "SecurityOpt": _security(box.host_config.get("SecurityOpt")),
        "IpcMode": "private",
        "PidsLimit": box.pids,
        "LogConfig": {"Type": "json-file", "Config": {"max-size": f"{box.log_mib}m", "max-file": "2"}},
        "Mounts": [_mount(mount) for mount in box.mounts if mount.kind != "tmpfs"],
        "Tmpfs": {mount.target: _tmpfs(mount, box.user) for mount in box.mounts if mount.kind == "tmpfs"},
        "DeviceRequests": requests_for(box.devices),
    }
    if not any(mount.target == "/dev/shm" for mount in box.mounts):
        ours["ShmSize"] = box.shm_bytes
    if box.memory_bytes is not None:
        # The same with swap: a server that swaps would slow down everybody's disk.
        ours |= {"Memory": box.memory_bytes, "MemorySwap": box.memory_bytes}
    if box.cores is not None:
        ours["NanoCpus"] = round(box.cores * 1e9)
    theirs = {name: value for name, value in box.host_config.items() if name not in ours}
    for name in ("Mounts", "Tmpfs"):
        more = box.host_config.get(name)
        if more:
            ours[name] = {**dict(more), **ours[name]} if name == "Tmpfs" else [*_list(more), *ours[name]]  # type: ignore[call-overload]
    return {**theirs, **ours}


def requests_for(devices: Sequence[str]) -> list[dict[str, Any]]:
    """Exactly these devices, by UUID; never a count, which gives everybody the first card."""
    return (
        [{"Driver": "", "Count": 0, "DeviceIDs": list(devices), "Capabilities": [["gpu"]], "Options": {}}]
        if devices
        else []
    )


def _security(more: object) -> list[str]:
    return [
        "no-new-privileges:true",
        *(word for word in _list(more) if isinstance(word, str) and "new-privileges" not in word),
    ]


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _mount(mount: Mount) -> dict[str, Any]:
    return {
        "Type": mount.kind,
        "Source": mount.source,
        "Target": mount.target,
        "ReadOnly": mount.read_only,
        **({"BindOptions": {"Propagation": "rprivate"}} if mount.kind == "bind" else {}),
    }


def _tmpfs(mount: Mount, user: str) -> str:
    uid, _, gid = user.partition(":")
    size = f"size={mount.size_bytes}" if mount.size_bytes is not None else f"size={64 * MIB}"
    return f"rw,nosuid,nodev,noexec,{size},mode=0700,uid={uid},gid={gid or 0}"


# ---- what the site may not add -----------------------------------------------------------------------------------


def fault(host_config: Mapping[str, object]) -> str:
    """Why these additions to `HostConfig` must not be used, with the remedy; "" where nothing is wrong."""
    return next(_faults(host_config), "")


def _faults(host_config: Mapping[str, object]) -> Iterator[str]:
    for name, harmless in _HARMLESS.items():
        if name in host_config and host_config[name] not in harmless:
            yield (
                f"{name} = {host_config[name]!r} would let a user's server out of its container, or give it devices "
                "that its lease does not hold; take it out. Devices come with the share that a user picks."
            )
    network = host_config.get("NetworkMode")
    if isinstance(network, str) and (network == "host" or network.startswith("container:")):
        yield f"NetworkMode = {network!r} would put a user's server into the network of the host; take it out."
    for word in _list(host_config.get("SecurityOpt")):
        if "unconfined" in str(word) or "new-privileges:false" in str(word).replace("=", ":"):
            yield f"SecurityOpt {word!r} would take away what keeps a user's server in its container; take it out."
    for source in sources(host_config):
        if is_socket(source):
            yield (
                f"{source} is mounted: whoever can write to the Engine's socket is root on this host, and takes any "
                "GPU; take it out. A place for building images has to be a machine of its own."
            )


def sources(host_config: Mapping[str, object]) -> list[str]:
    """Folders and files of the host that `Binds` and `Mounts` show."""
    binds = [str(bind).partition(":")[0] for bind in _list(host_config.get("Binds"))]
    mounts = [str(each.get("Source", "")) for each in _list(host_config.get("Mounts")) if isinstance(each, Mapping)]
    return [source for source in (*binds, *mounts) if source.startswith("/")]


def is_socket(source: str) -> bool:
    """Whether a path of the host is, or contains, the Engine's socket."""
    path = PurePosixPath(_plain(source))
    return any(PurePosixPath(_plain(each)).is_relative_to(path) for each in SOCKETS) or path.name == "docker.sock"


def _plain(path: str) -> str:
    """Without "..", ".", doubled slashes; /var/run is /run on every distribution of today."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    plain = "/" + "/".join(parts)
    return plain.replace("/var/run", "/run", 1) if plain.startswith("/var/run") else plain


# ---- what came out of it -----------------------------------------------------------------------------------------


def handed_over(inspected: Mapping[str, Any], devices: Sequence[str]) -> str:
    """Why the container that the Engine describes does not have exactly these devices; "" where it has."""
    asked = [
        str(device)
        for request in inspected.get("HostConfig", {}).get("DeviceRequests") or []
        for device in request.get("DeviceIDs") or [f"{request.get('Count')} of any"]
    ]
    if sorted(asked) != sorted(devices):
        return f"the container was given the devices {_named(asked)} instead of {_named(devices)}"
    env = dict(str(pair).partition("=")[::2] for pair in inspected.get("Config", {}).get("Env") or [])
    seen = env.get("NVIDIA_VISIBLE_DEVICES")
    wanted = ",".join(devices) or "void"
    if seen != wanted:
        return f"NVIDIA_VISIBLE_DEVICES is {seen!r} in the container instead of {wanted!r}"
    if inspected.get("HostConfig", {}).get("Privileged"):
        return "the container is privileged, so that it sees every device"
    return ""


def seen_inside(listing: str, devices: Sequence[str]) -> str:
    """The same by what `nvidia-smi -L` says inside: a line a device, with "(UUID: GPU-…)" or "(UUID: MIG-…)"."""
    found = [part.partition(")")[0].strip() for part in listing.split("UUID:")[1:]]
    parts = [uuid for uuid in found if uuid.startswith("MIG-")]
    wanted_parts = any(device.startswith("MIG-") for device in devices)
    seen = parts if wanted_parts else [uuid for uuid in found if uuid not in parts]
    if sorted(seen) == sorted(devices):
        return ""
    return f"inside the container the devices {_named(seen)} are seen instead of {_named(devices)}"


def _named(devices: Sequence[str]) -> str:
    return ", ".join(sorted(devices)) or "none"
