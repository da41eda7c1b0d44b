"""The examples of docs/extend on one real site."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import httpx
import pytest

from hub_config.compose import parts
from tests.fakes.mailbox import MailBox
from tests.harness import Stack, until

pytestmark = pytest.mark.hub

EXAMPLES = Path(__file__).parents[2] / "examples" / "site"
TOML = """
[gpus]
source = "simulated"
simulated = 2
[idle]
without_gpu = "12 s"
notice = "6 s"
check_every = "1 s"
[hub]
"""
BANNER = 'c.JupyterHub.template_vars.update({"announcement": "Maintenance on Friday, 18:00"})\n'


@pytest.fixture(scope="module")
def box() -> Iterator[MailBox]:
    with MailBox() as opened:
        yield opened


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, box: MailBox) -> Iterator[Stack]:
    data = tmp_path_factory.mktemp("extended") / "data"
    stack = Stack(data, TOML + (EXAMPLES / "berth.toml").read_text(encoding="utf-8"), extra_config=BANNER)
    shutil.copytree(EXAMPLES, data, dirs_exist_ok=True, ignore=shutil.ignore_patterns("berth.toml", "__pycache__"))
    mail = (EXAMPLES / "site_mail.py").read_text(encoding="utf-8")
    own = mail.replace('SERVER = ("localhost", 25)', f'SERVER = ("127.0.0.1", {box.port})')
    assert own != mail
    (data / "site_mail.py").write_text(own, encoding="utf-8")
    with stack as running:
        yield running


def test_the_placement_of_the_example_places_servers(site: Stack) -> None:
    person = site.researcher
    person.start("gpu-1-4")
    person.start("gpu-1-4", server="second")
    try:
        # Best fit would have put both on one device, and one would be free as a whole.
        assert site.admin.free_now()["gpu-1"] == 0
        assert set(person.free_now()) == {"cpu", "gpu-1-8", "gpu-1-4"}, "REST has the menu of who asks"
    finally:
        person.stop(server="second")
        person.stop()


def test_the_menu_of_the_example_grows_with_the_course(site: Stack) -> None:
    """Form and start alike, and by the membership of this moment."""
    person, admin = site.researcher, site.admin
    form = person.browser.get("/hub/spawn").text
    assert "after the GPU course" in form and 'data-profile="gpu-1"' not in form
    refusal = person.refused({"profile": "gpu-1"})
    assert refusal.status == 403 and "gpu-1-4" in str(refusal)
    assert admin.hub("POST", "/groups/gpu-course").status_code == 201
    assert admin.hub("POST", "/groups/gpu-course/users", {"users": ["researcher"]}).status_code == 200
    assert 'data-profile="gpu-1"' in person.browser.get("/hub/spawn").text


def test_the_price_of_the_example_is_shown_pinned_and_on_the_receipt(site: Stack) -> None:
    person, admin = site.researcher, site.admin
    assert admin.hub("POST", "/groups/students").status_code == 201
    assert admin.hub("POST", "/groups/students/users", {"users": ["researcher"]}).status_code == 200
    form = person.browser.get("/hub/spawn").text
    assert "0.0125 credits per hour" in form and "your price: student price" in form
    person.start("gpu-1-8")
    lease = person.lease()
    person.stop()
    done = person.settled(lease["id"])
    assert (done["price"]["own_hour_micro_credits"], done["price"]["rule"]) == (12_500, "student price")
    receipt = person.browser.get(f"/services/berth/lease/{lease['id']}").text
    assert "credits/h (student price)" in receipt and "1\u00a0server × 0.0125" in receipt
    assert parts(site.data).bank.audit() == []


def test_the_mail_of_the_example_warns_and_tells_of_the_stop(site: Stack, box: MailBox) -> None:
    person = site.researcher
    person.start("cpu")
    lease = person.leases()[0]["id"]

    def about_it() -> dict[str, EmailMessage]:
        """Those before it are of servers that the tests above have stopped."""
        link = f"/services/berth/lease/{lease}"
        return {str(mail["Subject"]): mail for mail in box.mails if link in mail.get_content()}

    until(lambda: len(about_it()) == 3, 60, "three mails")
    warning, stop, card = about_it().values()
    assert warning["Subject"] == "Your server will be stopped soon: it is idle"
    assert stop["Subject"] == "Your server was stopped: it was idle"
    assert card["Subject"] == "Your server has ended"
    assert {mail["To"] for mail in box.mails} == {"researcher@example.org"}
    assert "idle.without_gpu" in stop.get_content() and "idle.without_gpu" in card.get_content()
    assert "It ran for" in card.get_content()
    until(lambda: delivered(site) == 2, 30, "both are counted in the metrics")


def test_the_support_box_of_the_example_is_on_every_page(site: Stack) -> None:
    browser = site.researcher.browser
    hub, service = ("/hub/home", "/hub/spawn", "/hub/token", "/hub/nowhere"), ("/services/berth/", "/services/berth/x")
    for path in (*hub, *service):
        text = browser.get(path).text
        assert text.count('id="site-support"') == 1, path
        assert "researcher" in text, f"{path} is Berth's page all the same"
    assert 'id="site-support"' in httpx.get(f"{site.url}/hub/login").text


def delivered(site: Stack) -> float:
    token = (site.data / "secrets/metrics_token").read_text(encoding="ascii").strip()
    answer = httpx.get(f"{site.url}/services/berth/metrics", headers={"Authorization": f"Bearer {token}"})
    found = re.search(r"^berth_idle_culler_notices_written_total\{.*\} (\S+)$", answer.text, re.MULTILINE)
    return float(found[1]) if found else 0


def test_extra_config_puts_a_banner_on_the_pages_of_the_hub(site: Stack) -> None:
    assert "Maintenance on Friday, 18:00" in site.researcher.browser.get("/hub/token").text


def test_an_extension_that_cannot_be_loaded_ends_the_start_in_one_line(tmp_path: Path) -> None:
    stack = Stack(tmp_path / "data", '[extensions]\nplacement = "site_gone:place"\n')
    assert stack.launch().wait(60) != 0
    said = stack.screen.read_text(encoding="utf-8").strip()
    assert "extensions.placement: there is no module 'site_gone'" in said and "\n" not in said
