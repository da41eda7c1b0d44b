"""The pages of service berth over HTTP: usage, who holds what, receipts, stopping."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from quota.leases import StopReason, Target
from tests.contract.service_reading import post, words
from tests.fakes.book import Desk, open_desk
from tests.fakes.service import PREFIX, Service, open_service


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    with open_desk(tmp_path) as desk:
        desk.devices(2)
        async with open_service(desk, image_titles={"env": "This environment"}) as found:
            found.hub.add_user("alice")
            found.hub.add_user("boss", admin=True)
            yield found


@pytest.fixture
def desk(service: Service) -> Desk:
    return service.desk


async def test_usage_shows_seconds_times_share_times_rate(service: Service, desk: Desk) -> None:
    desk.session(3612.4, share=250, profile="gpu-1-4")
    said = words(await service.browser("alice").get(""))
    assert "3 612.4 s × 1/4 × 1.00 credit/h = 0.250861" in said
    assert "In all 0.250861" in said
    assert "Stopped by its user" in said
    assert "1/4 GPU, simulated" in said
    assert "UTC" in said
    assert "No server is running" in said


async def test_usage_of_a_running_server_is_live_and_names_the_reason_of_the_last(service: Service, desk: Desk) -> None:
    desk.run(server="two", profile="test", share=1000)
    desk.clock.advance(1800)
    ended = desk.run(profile="cpu", share=0, count=0)
    desk.clock.advance(60)
    desk.book.request_stop(ended.id, StopReason.IDLE, detail="not used for 30 min (idle_gpu = 1800 s)")
    desk.wind_up(desk.book.acknowledge(ended.id, "boot-1"))
    said = words(await service.browser("alice").get(""))
    assert "1 860 s × 1 × 1.00 credit/h = 0.516667" in said
    assert "60 s × 1 server × 0.00 credits/h = 0.000000" in said
    assert "Reclaimed because it was idle: not used for 30 min (idle_gpu = 1800 s)" in said
    assert "1.00 credits per hour" in said


async def test_usage_of_a_start_that_failed_says_so_and_charges_nothing(service: Service, desk: Desk) -> None:
    lease = desk.reserve(profile="test")
    desk.book.request_stop(lease.id, StopReason.FAILED, detail="no answer within 30 s")
    desk.wind_up(desk.book.acknowledge(lease.id, "boot-1"))
    said = words(await service.browser("alice").get(""))
    assert "It never answered, so nothing was charged." in said
    assert "no answer within 30 s" in said
    receipt = words(await service.browser("alice").get(f"lease/{lease.id}"))
    assert "It never answered, so nothing was charged." in receipt


async def test_i20_an_idle_warning_is_shown_with_its_deadline_and_looking_does_not_move_it(
    service: Service, desk: Desk
) -> None:
    lease = desk.run(profile="test")
    deadline = desk.now + timedelta(minutes=5)
    desk.rows.put_verdict(lease.id, desk.now, "warn", "idle", "not used since nine", {}, deadline)
    client = service.browser("alice")
    for _ in range(5):
        said = words(await client.get(""))
        assert "Idle: default server. Not used since nine. Deadline: 2 Mar 2026, 09:05:00" in said
        await client.get("board")
        await client.get(f"lease/{lease.id}")
    assert desk.rows.verdict(lease.id).deadline == deadline  # type: ignore[union-attr]


async def test_b8_one_zone_is_printed_and_its_months_are_used(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        desk.devices(1)
        desk.session(10, profile="test")
        async with open_service(desk, zone="Asia/Shanghai") as service:
            service.hub.add_user("alice")
            client = service.browser("alice")
            said = words(await client.get(""))
            assert "Asia/Shanghai" in said and "2 Mar 2026, 17:00:00" in said
            assert "There was no session in February 2026." in words(await client.get("?month=2026-02"))


async def test_a_bad_month_is_a_page_in_words(service: Service) -> None:
    client = service.browser("alice")
    for path in ("?month=x", "?month=2026-13", "?month=0000-01", "usage.csv?month=9999999-01", "?month=٢٠٢٦-٠٣"):
        answer = await client.get(path)
        assert answer.status_code == 400
        assert "is not a month such as 2026-03" in words(answer)


async def test_the_csv_cannot_run_formulas(service: Service, desk: Desk) -> None:
    lease = desk.run(profile="=cmd()", image="+1", share=250)
    desk.clock.advance(100.25)
    desk.book.request_stop(lease.id, StopReason.ADMIN, by="boss", detail="x")
    desk.wind_up(desk.book.acknowledge(lease.id, "boot-1"))
    answer = await service.browser("alice").get("usage.csv?month=2026-03")
    assert answer.headers["content-disposition"] == 'attachment; filename="berth-usage-2026-03.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == 1
    assert (rows[0]["profile"], rows[0]["environment"], rows[0]["simulated"]) == ("'=cmd()", "'+1", "simulated")
    assert (rows[0]["seconds"], rows[0]["milli_gpu_seconds"], rows[0]["credits"]) == ("100.250000", "25062", "0.006962")


async def test_text_of_users_is_escaped(service: Service, desk: Desk) -> None:
    desk.session(5, profile="<script>x</script>")
    answer = await service.browser("alice").get("")
    assert "<script>x" not in answer.text and "&lt;script&gt;x" in answer.text


async def test_somebody_elses_usage_is_for_administrators(service: Service, desk: Desk) -> None:
    desk.session(5, profile="test")
    assert (await service.browser("alice").get("?account=boss")).status_code == 403
    answer = await service.browser("boss").get("?account=alice")
    assert "Usage of alice" in words(answer)
    assert "account=alice" in re.findall(r'id="csv" href="([^"]+)"', answer.text)[0]
    assert (await service.browser("boss").get("?account=nobody")).status_code == 404


async def test_p17_the_board_tells_user_share_since_use_and_idleness(service: Service, desk: Desk) -> None:
    one = desk.run(profile="test", share=250)
    desk.clock.advance(3600)
    desk.run("bob", profile="gpu-1", share=1000)
    desk.book.observe_all([one], desk.now)
    desk.rows.put_signal(one.id, "host", {"cpu_percent": 42.0, "cpu_active_at": None, "window_s": 10}, desk.now)
    desk.rows.put_verdict(one.id, desk.now, "keep", "busy-kernel", "in use: a kernel runs code", {}, None)
    said = words(await service.browser("alice").get("board"))
    assert (
        "alice default server · running test 1/4 GPU, simulated GPU 0 · simulated GPU · h1 2 Mar 2026, 09:00:00 60 min"
        in said
    )
    assert "GPU: no reading (simulated) CPU 42 %" in said
    assert "In use: a kernel runs code." in said
    assert "bob" in said and "not judged yet" in said
    assert "3/4 GPU free" in said and "nothing free" in said
    assert "credit" not in said and "Charged" not in said
    admin = words(await service.browser("boss").get("board"))
    assert "Charged so far" in admin and "0.25 per hour" in admin


async def test_the_board_filters(service: Service, desk: Desk) -> None:
    desk.run(profile="test")
    desk.run("bob", profile="test")
    client = service.browser("alice")
    page = (await client.get("board?q=BOB")).text
    assert 'data-user="bob"' in page and 'data-user="alice"' not in page
    assert "No running server matches" in words(await client.get("board?q=<b>"))


async def test_empty_pages_say_so(tmp_path: Path) -> None:
    with open_desk(tmp_path) as desk:
        async with open_service(desk) as service:
            service.hub.add_user("boss", admin=True)
            client = service.browser("boss")
            assert "Nobody has a server running. All room is free." in words(await client.get("board"))
            assert "No GPU has been reported yet." in words(await client.get("board"))
            assert "There was no session in March 2026." in words(await client.get(""))
            said = words(await client.get("admin"))
            assert "Nobody has a server running." in said and "Agent never seen" in said


async def test_stopping_asks_first_then_tells(service: Service, desk: Desk) -> None:
    lease = desk.run(server="two", profile="test")
    client = service.browser("alice")
    asked = await client.get(f"lease/{lease.id}/stop")
    assert "Stop your two?" in words(asked)
    assert desk.book.lease(lease.id).target is Target.RUN
    answer = await post(client, f"lease/{lease.id}/stop", f"lease/{lease.id}/stop")
    assert answer.history[0].status_code == 303
    assert "The server is being stopped." in words(answer)
    assert "To be stopped: stopped by its user, by alice" in words(answer)
    assert "The server is being stopped." not in words(await client.get(f"lease/{lease.id}"))  # said once
    found = desk.book.lease(lease.id)
    assert (found.target, found.stop_reason, found.stop_by) == (Target.STOP, StopReason.USER, "alice")
    assert service.hub.stopped == [("alice", "two")]
    assert "already on its way out" in words(await client.get(f"lease/{lease.id}/stop"))


async def test_a_receipt_is_for_its_user_and_administrators(service: Service, desk: Desk) -> None:
    lease = desk.session(50, "bob", profile="test", share=125)
    assert (await service.browser("alice").get(f"lease/{lease.id}")).status_code == 403
    assert (await service.browser("alice").get(f"lease/{lease.id}/stop")).status_code == 403
    assert (await service.browser("alice").get("lease/l0000")).status_code == 404
    said = words(await service.browser("boss").get(f"lease/{lease.id}"))
    assert "50 s × 1/8 × 1.00 credit/h 0.001736 Charged 0.001736" in said
    assert "6 250 milli-GPU-seconds" in said and "This environment" in said
    assert "Ready: the server answered, charging began" in said and "Settled" in said


async def test_a_refund_by_an_administrator(service: Service, desk: Desk) -> None:
    lease = desk.session(3600, profile="test")
    client = service.browser("boss")
    answer = await post(client, f"lease/{lease.id}", f"lease/{lease.id}/refund", credits="0.2", note="slow disk")
    said = words(answer)
    assert "Refunded 0.200000 credits." in said and "Refunded 0.20 credits (slow disk), by boss" in said
    assert "Refunded -0.20" in said and 'action="' + PREFIX + f"lease/{lease.id}/refund" not in answer.text
    usage = words(await service.browser("alice").get(""))
    assert "refunded in part" in usage and "In all 0.30" in usage


async def test_a_stop_by_idleness_shows_what_was_seen(service: Service, desk: Desk) -> None:
    lease = desk.run(profile="test")
    seen = {"limit_s": 1800, "idle_since": "2026-03-02T08:30:00+00:00", "kernels": 0, "cpu_percent": "not reported"}
    desk.rows.put_verdict(lease.id, desk.now, "reclaim", "idle", "not used", seen, desk.now)
    desk.book.request_stop(lease.id, StopReason.IDLE, detail="not used for 30 min")
    desk.wind_up(desk.book.acknowledge(lease.id, "boot-1"))
    said = words(await service.browser("alice").get(f"lease/{lease.id}"))
    assert "Why it ended Reclaimed because it was idle: not used for 30 min." in said
    assert "Not used since 2 Mar 2026, 08:30:00" in said and "Limit 30 min" in said and "Kernels 0" in said
    assert "CPU of its programs not reported" in said


async def test_x19_the_end_of_a_servers_log_is_on_its_receipt_for_those_who_may_see_it(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []

    def log_tail(lease_id: str, lines: int) -> tuple[str, ...]:
        asked.append((lease_id, lines))
        return ("Killed <b>me</b>", "{{ 7 * 7 }} Zürich 苏黎世")

    with open_desk(tmp_path) as desk:
        desk.devices(1)
        desk.bank.ensure_account("bob")
        crashed, fine = desk.run(profile="test"), desk.session(10, "bob", profile="test")
        desk.clock.advance(10)
        desk.book.close(crashed, desk.now, StopReason.FAILED, "signal 9")
        async with open_service(desk, log_tail=log_tail) as service:
            service.hub.add_user("alice"), service.hub.add_user("boss", admin=True)
            for who in ("alice", "boss"):
                page = (await service.browser(who).get(f"lease/{crashed.id}")).text
                assert 'id="log" open>' in page and "The last 2 lines of its log" in page
                assert "Killed &lt;b&gt;me&lt;/b&gt;\n{{ 7 * 7 }} Zürich 苏黎世" in page
            assert asked == [(crashed.id, 100)] * 2
            assert (await service.browser("alice").get(f"lease/{fine.id}")).status_code == 403
            assert len(asked) == 2, "nobody reads for somebody who may not see it"
            assert 'id="log">' in (await service.browser("boss").get(f"lease/{fine.id}")).text


async def test_a_server_without_a_log_has_none_on_its_receipt(service: Service, desk: Desk) -> None:
    lease = desk.session(10, profile="test")
    assert 'id="log"' not in (await service.browser("alice").get(f"lease/{lease.id}")).text
