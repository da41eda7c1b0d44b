"""What only a real hub shows of the spawner: who asked, what it remembers, what a server sees of its surroundings."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.harness import Kernel, Stack

pytestmark = pytest.mark.hub


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("spawner") / "data") as stack:
        yield stack


def test_s19_refused_options_do_not_come_back_and_the_admin_who_stops_is_named(stack: Stack) -> None:
    me, admin = stack.add("用户"), stack.admin
    assert me.refused({"profile": "h100"}).status == 400
    answer = admin.ask_start(user=me.name)
    assert answer.status_code in (201, 202), answer.text
    lease = me.lease()
    assert (lease["profile"], lease["requested_by"]) == ("cpu", "admin")
    admin.stop(user=me.name)
    settled = me.settled(lease["id"])
    assert settled["stop_reason"] == "admin"


def test_a_server_sees_its_home_and_none_of_the_platforms_secrets(stack: Stack) -> None:
    me = stack.add("a@b.org")
    me.start("gpu-1-8")
    with Kernel(me) as kernel:
        env = json.loads(kernel.run("import json, os; print(json.dumps(dict(os.environ)))"))
        news = kernel.run(
            "from jupyterlab_server.settings_utils import _get_overrides\nprint(_get_overrides('/nowhere')[0])"
        )
    home = stack.data / "homes" / "a@b.org"
    assert (env["HOME"], env["BERTH_PROFILE"], env["BERTH_SIMULATED"]) == (str(home), "gpu-1-8", "1")
    assert env["CUDA_VISIBLE_DEVICES"].startswith("SIM-")
    assert home.stat().st_mode & 0o077 == 0
    assert (home / "berth-examples" / "digits.ipynb").is_file()
    secrets = [path.read_text().strip() for path in (stack.data / "secrets").iterdir() if path.is_file()]
    logins = [login["password"] for login in stack.passwords().values() if isinstance(login, dict)]
    leaked = [name for name, value in env.items() if any(secret in value for secret in [*secrets, *logins] if secret)]
    # The deployment's mark is no secret: it is how strays are found.
    assert [name for name in leaked if name != "BERTH_DEPLOYMENT"] == []
    assert "BERTH_DATA" not in env
    assert "'fetchNews': 'false'" in news
    me.stop()
