"""The ports of one deployment: the public one is chosen by its operator, the others are found once and kept.

They are kept because running servers know the Hub by its port: after a restart they must find it there again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from hub_config.datafolder import DataFolder, write_private
from hub_config.processes import free_port, port_taken


@dataclass(frozen=True, slots=True)
class Ports:
    public: int
    hub: int
    berth: int
    proxy_api: int

    @staticmethod
    def load(data: DataFolder) -> Ports:
        """What `berth up` wrote."""
        return Ports(**json.loads((data.root / "ports.json").read_text(encoding="utf-8")))

    @staticmethod
    def choose(data: DataFolder, public: int, address: str = "127.0.0.1") -> Ports:
        """The ports of the last time where they are still free, new ones elsewhere. `address` is where servers reach
        the Hub and service `berth`."""
        try:
            last = asdict(Ports.load(data))
        except (OSError, ValueError, TypeError):
            last = {}
        found = {"public": public}
        for name in ("hub", "berth", "proxy_api"):
            port = last.get(name)
            where = "127.0.0.1" if name == "proxy_api" else address
            while port is None or port in found.values() or port_taken(where, port):
                port = free_port(where)
            found[name] = port
        ports = Ports(**found)
        write_private(data.root / "ports.json", json.dumps(asdict(ports)) + "\n")
        return ports
