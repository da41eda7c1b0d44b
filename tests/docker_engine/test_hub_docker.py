"""A real hub whose servers are containers of a real Engine: starts, ends, charges, and what is left behind."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spawner.box import DEPLOYMENT_LABEL, LEASE_LABEL
from tests.harness import Kernel, Stack, until
from tests.harness import engine as engines

pytestmark = [pytest.mark.docker, pytest.mark.hub]

TOML = """
[backend]
kind = "docker"
[docker]
url = "{url}"
pull = "never"
[gpus]
simulated = 1
[[images]]
name = "lab"
reference = "{image}"
title = "Lab"
[[images]]
name = "absent"
reference = "berth-nowhere:1"
title = "Not here"
[[profiles]]
name = "cpu"
share = 0
memory_mib = 1024
cpu = 2
[[profiles]]
name = "shut"
share = 0
egress = "none"
[[profiles]]
name = "gpu-1-2"
share = "1/2"
"""


class Site:
    """One hub on the Engine."""

    def __init__(self, stack: Stack, engine: engines.Engine) -> None:
        self.stack, self.engine = stack, engine
        self.deployment = (stack.data / "secrets" / "deployment").read_text().strip()

    def containers(self, *, everything: bool = False) -> list[dict[str, Any]]:
        """Of this deployment, as `inspect` tells."""
        with self.engine.connected() as client:
            label = f"{DEPLOYMENT_LABEL}={self.deployment}"
            return [each.attrs for each in client.containers.list(all=everything, filters={"label": label})]

    def lease(self, lease_id: str) -> dict[str, Any]:
        """Its row."""
        with sqlite3.connect(self.stack.data / "book.sqlite", timeout=30) as book:
            book.row_factory = sqlite3.Row
            return dict(book.execute("SELECT * FROM lease WHERE id = ?", [lease_id]).fetchone())

    def settled(self, lease_id: str) -> dict[str, Any]:
        """The row, once its bill is closed."""
        until(lambda: self.lease(lease_id)["state"] == "SETTLED", 60, f"lease {lease_id} is settled")
        return self.lease(lease_id)


@pytest.fixture(scope="module")
def site(engine: engines.Engine, lab_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    toml = TOML.format(url=engine.url, image=lab_image)
    with Stack(tmp_path_factory.mktemp("docker-hub"), toml) as stack:
        yield Site(stack, engine)
    engine.clear()


def lease_of(container: dict[str, Any]) -> str:
    return str(container["Config"]["Labels"][LEASE_LABEL])


def died_at(engine: engines.Engine, container: str, since: float) -> datetime:
    """When the Engine saw its end; the container itself may be removed already."""
    command = ["/usr/bin/docker", "-H", engine.url, "events", "--since", str(int(since) - 5), "--until", "0s"]
    command += ["--filter", f"container={container}", "--filter", "event=die", "--format", "{{json .}}"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    return datetime.fromtimestamp(json.loads(said.splitlines()[-1])["timeNano"] / 1e9, UTC)


def test_a_server_runs_in_a_container_and_computes(site: Site) -> None:
    person = site.stack.add("ada")
    person.start("cpu", seconds=120)
    (container,) = site.containers()
    assert container["Name"] == f"/berth--{site.deployment}--ada"
    assert container["HostConfig"]["Memory"] == 1 << 30 and container["HostConfig"]["CapDrop"] == ["ALL"]
    with Kernel(person) as kernel:
        assert kernel.run("import os; print(os.getuid(), os.path.expanduser('~'))").strip() == "1000 /home/jovyan"
        kernel.run("open('kept.txt', 'w').write('mine')")
    person.stop()
    assert site.settled(lease_of(container))["stop_reason"] == "user"
    assert site.containers(everything=True) == []
    person.start("cpu", seconds=120)
    with Kernel(person) as kernel:
        assert kernel.run("print(open('kept.txt').read())").strip() == "mine", "the home outlives its server"
    person.stop()


def test_a_server_reaches_the_hub_and_nothing_else_of_the_host(site: Site) -> None:
    person = site.stack.add("uma")
    person.start("shut", seconds=120)
    ask = "import socket; socket.create_connection(({address!r}, {port}), 3); print('reached')"
    with Kernel(person) as kernel:
        hub = kernel.run("import os; print(os.environ['JUPYTERHUB_API_URL'].split('/')[2])").strip()
        address, port = hub.split(":")
        assert kernel.run(ask.format(address=address, port=port)).strip() == "reached"
        with socket.socket() as listening:
            listening.bind(("0.0.0.0", 0))
            listening.listen()
            port = listening.getsockname()[1]
            trying = f"try:\n    {ask.format(address=address, port=port)}\nexcept OSError as error: print(error)"
            said = kernel.run(trying)
            assert "refused" in said or "timed out" in said, said
    person.stop()


def test_a_simulated_gpu_is_no_device_of_the_host(site: Site) -> None:
    person = site.stack.add("bob")
    person.start("gpu-1-2", seconds=120)
    (container,) = site.containers()
    assert not container["HostConfig"]["DeviceRequests"]
    assert "NVIDIA_VISIBLE_DEVICES=void" in container["Config"]["Env"]
    person.stop()


def test_a_killed_container_is_charged_to_its_end(site: Site) -> None:
    person, began = site.stack.add("cy"), time.time()
    person.start("gpu-1-2", seconds=120)
    (container,) = site.containers()
    subprocess.run(["/usr/bin/docker", "-H", site.engine.url, "kill", container["Id"]], check=True, capture_output=True)
    row = site.settled(lease_of(container))
    ended = datetime.fromtimestamp(row["ended_at"] / 1e6, UTC)
    assert abs(ended - died_at(site.engine, container["Id"], began)) <= timedelta(seconds=1)
    assert row["stop_reason"] == "failed" and "signal 9" in row["stop_detail"]
    until(lambda: site.containers(everything=True) == [], 30, "nothing is left")


def test_an_image_that_is_not_here_is_refused_before_anything_is_held(site: Site) -> None:
    person = site.stack.add("dee")
    answer = person.ask_start({"profile": "cpu", "image": "absent"})
    assert answer.status_code == 503 and "Not here" in answer.json()["message"], answer.text
    with sqlite3.connect(site.stack.data / "book.sqlite") as book:
        assert book.execute("SELECT count(*) FROM lease WHERE holder_user = 'dee'").fetchone() == (0,)


def test_s1_a_killed_hub_finds_its_servers_again(site: Site) -> None:
    person = site.stack.add("eve")
    person.start("cpu", seconds=120)
    (container,) = site.containers()
    site.stack.wait_for_new("hub", site.stack.kill("hub"))
    until(site.stack.answers, 60, "the hub answers again")
    until(lambda: person.ready(), 60, "the server is known again")
    assert [each["Id"] for each in site.containers()] == [container["Id"]]
    assert person.notebook("GET", "api/status").status_code == 200
    person.stop()
    site.settled(lease_of(container))


def test_s5_orphans_go_and_strangers_stay(site: Site, base_image: str) -> None:
    with site.engine.connected() as client:
        labels = {DEPLOYMENT_LABEL: site.deployment, LEASE_LABEL: "l-nobody"}
        orphan = client.containers.run(base_image, ["sleep", "3600"], detach=True, labels=labels, network_mode="none")
        other = client.containers.run(
            base_image,
            ["sleep", "3600"],
            detach=True,
            labels={**labels, DEPLOYMENT_LABEL: "other"},
            network_mode="none",
        )
        until(lambda: orphan.id not in [each["Id"] for each in site.containers(everything=True)], 90, "it is removed")
        other.reload()
        assert other.status == "running"
        other.remove(force=True)


def test_s25_who_gets_a_deleted_users_name_finds_an_empty_home(site: Site) -> None:
    admin, person = site.stack.admin, site.stack.add("fay")
    person.start("cpu", seconds=120)
    with Kernel(person) as kernel:
        kernel.run("open('secret.txt', 'w').write('mine')")
    person.stop()
    assert admin.hub("DELETE", "/users/fay").status_code == 204
    site.stack.forget_people()
    again = site.stack.add("fay")
    again.start("cpu", seconds=120)
    with Kernel(again) as kernel:
        assert kernel.run("import os; print(os.path.exists('secret.txt'))").strip() == "False"
    again.stop()
    with site.engine.connected() as client:
        assert len([each for each in client.volumes.list() if "fay" in each.name]) == 2, "the old home stays"


def test_an_engine_that_is_silent_ends_nobodys_lease(site: Site) -> None:
    person = site.stack.add("gil")
    person.start("cpu", seconds=120)
    (container,) = site.containers()
    site.engine.pause()
    try:
        time.sleep(15)
        row = site.lease(lease_of(container))
        assert row["state"] == "RUNNING" and row["target"] == "RUN"
    finally:
        site.engine.resume()
    assert person.notebook("GET", "api/status").status_code == 200
    person.stop()
    site.settled(lease_of(container))
