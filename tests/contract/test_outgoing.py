"""What is called and what is not: hostile addresses, names that change, redirects, endless answers."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from quota.outgoing import LARGEST_ANSWER, Calls, NotReached, Policy, Unsafe, is_public


def says(*addresses: str) -> Policy:
    return Policy(("https", "http"), (), lambda host, port: list(addresses))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1%eth0", "fd00::1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::", "fd00:ec2::254", "nonsense",
    ],
)  # fmt: skip
def test_no_address_of_this_machine_or_its_networks_is_public(address: str) -> None:
    assert not is_public(address)
    with pytest.raises(Unsafe):
        says("93.184.216.34", address).check("https://chat.example.org/hook")  # one of several is enough


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:8.8.8.8"])
def test_addresses_of_the_open_internet_are(address: str) -> None:
    assert is_public(address)
    says(address).check("https://chat.example.org/hook")


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "ftp://example.org/", "gopher://example.org", "syslog://", "dbus://", "exec://ls",
        "javascript:alert(1)", "https://", "https:///x", "", "example.org", "https://a b/", "https://x\n.example/",
        "https://ada:pw@example.org/", "https://example.org\\@127.0.0.1/", "https://[::1", "https://x:99999999/",
        "https://example.org/" + "a" * 3000, "mailto:a@b", "json://127.0.0.1/",
    ],
)  # fmt: skip
def test_what_is_no_plain_web_address_is_refused(url: str) -> None:
    with pytest.raises(Unsafe):
        says("93.184.216.34").check(url)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0177.0.0.1", "[::1]", "[::ffff:7f00:1]"]
)
def test_this_machine_by_any_name_is_refused(host: str) -> None:
    with pytest.raises((Unsafe, NotReached)):
        Policy(("http",)).check(f"http://{host}/")


class Answers(http.server.BaseHTTPRequestHandler):
    asked: list[str]

    def do_POST(self) -> None:
        self.server.asked.append(self.path)  # type: ignore[attr-defined]
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "/secret")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        try:
            for _ in range(1000 if self.path == "/endless" else 1):
                self.wfile.write(b"x" * 4096)
        except OSError:
            pass

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[http.server.ThreadingHTTPServer]:
    found = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    found.asked = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()
    thread.join()


def test_a_redirect_is_not_followed_and_an_endless_answer_is_cut(server: http.server.ThreadingHTTPServer) -> None:
    calls = Calls(Policy(("http",), ("127.0.0.1",)))
    base = f"http://127.0.0.1:{server.server_port}"
    assert calls.post(f"{base}/away", data="x").status_code == 302
    assert len(calls.post(f"{base}/endless", data="x").content) == LARGEST_ANSWER
    assert server.asked == ["/away", "/endless"]  # type: ignore[attr-defined]


def test_a_name_that_says_another_address_a_moment_later_leads_nowhere(server: http.server.ThreadingHTTPServer) -> None:
    told = iter([["93.184.216.34"], ["127.0.0.1"], ["127.0.0.1"]])
    calls = Calls(Policy(("http",), (), lambda host, port: next(told)))
    with pytest.raises((Unsafe, NotReached)):
        calls.post(f"http://rebind.example:{server.server_port}/x", data="x")
    assert server.asked == []  # type: ignore[attr-defined]
