"""REST of the service `berth`, under `/services/berth/api/v1/`. Shapes: `quota.web.shape`; errors: problem+json."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

from jupyterhub.services.auth import HubAuth
from tornado.web import HTTPError

from quota.bank import AccountView
from quota.leases import Lease
from quota.web import actions, fields, kit, shape
from quota.web.base import JsonHandler, endpoint, too_large
from quota.web.figures import figures
from quota.web.parts import HubUnavailable
from quota.web.period import Period, month_of, parse_moment
from quota.web.problem import Problem, Why
from quota.web.snapshot import Snapshot, snapshot
from quota.web.views import statement
from quota.web.words import instant

LARGEST_PAGE = 1000
#: A GPU limit above this says nothing: 10 000 GPUs.
MOST_GPU_MILLI = 10_000_000
MOST_SERVERS = 100_000


class ApiHandler(JsonHandler):
    """Base of the addresses: bodies, arguments, leases in their form."""

    def body(self, *known: str) -> dict[str, Any]:
        """The JSON object of the body, with no other fields than these. Raises `Problem`."""
        content = self.any_body()
        fields.only(content, *known)
        return content

    def any_body(self) -> dict[str, Any]:
        """The JSON object of the body; none is an empty one. Raises `Problem`."""
        if self.overflow:
            raise too_large()
        kind = self.request.headers.get("Content-Type", "application/json").partition(";")[0].strip().lower()
        if self.raw and kind != "application/json":
            raise Problem(415, Why.MEDIA_TYPE, "The body must be application/json.")
        return fields.json_object(bytes(self.raw))

    def moment(self, name: str) -> datetime | None:
        """A time in the address, None where it is absent. Raises `Problem`."""
        text = self.get_query_argument(name, "")
        if not text:
            return None
        try:
            return parse_moment(text, self.parts.tz)
        except ValueError as error:
            raise Problem(400, Why.DATE_INVALID, f"{name}: {error}.") from None

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number in the address. Raises `Problem`."""
        text = self.get_query_argument(name, "")
        if not text:
            return default
        plain = text.isascii() and text.isdigit() and len(text) < 10
        return fields.integer({name: int(text) if plain else None}, name, low, high)

    def shape_of(self, lease: Lease, seen: Snapshot) -> dict[str, Any]:
        return shape.lease_json(lease, seen.segments(lease), seen.devices, seen.verdict(lease), seen.now)

    async def send_lease(self, lease: Lease, status: int = 200) -> None:
        seen = await self.in_thread(snapshot, self.parts, [lease])
        self.send(self.shape_of(lease, seen), status)

    async def account_view(self, name: str) -> AccountView:
        """One's own account (made on the first look), or any for an administrator. Raises `Problem`."""
        if name == self.viewer.name:
            await self.in_thread(self.parts.bank.ensure_account, name)
        elif not self.viewer.admin:
            raise Problem(403, Why.FORBIDDEN, "This account is somebody else's.")
        elif not fields.is_name(name):
            raise Problem(404, Why.NOT_FOUND, "There is no such account.")
        else:
            name = await actions.known_account(self, name)
        return await self.in_thread(self.parts.bank.account, name)


class Me(ApiHandler):
    @endpoint()
    async def get(self) -> None:
        view = await self.account_view(self.viewer.name)
        leases = await self.in_thread(self.parts.book.leases, user=self.viewer.name, limit=LARGEST_PAGE)
        live = [lease for lease in leases if lease.live]
        seen = await self.in_thread(snapshot, self.parts, live)
        burn = sum(figures(lease, seen.segments(lease), seen.now).per_hour for lease in live)
        self.send(
            {
                "name": self.viewer.name,
                "admin": self.viewer.admin,
                "account": shape.account_json(view),
                "burn_micro_credits_per_hour": burn,
                "time_zone": self.parts.zone,
                "leases": [self.shape_of(lease, seen) for lease in live],
            }
        )


class MyUsage(ApiHandler):
    @endpoint()
    async def get(self) -> None:
        period = self.period()
        view = await self.account_view(self.viewer.name)
        found = await self.in_thread(statement, self.parts, view.account.name, period)
        lines = [line for line, _ in found]
        self.send(
            {
                "account": view.account.name,
                "from": instant(period.start),
                "to": instant(period.end),
                "time_zone": self.parts.zone,
                "milli_gpu_seconds": sum(line.milli_gpu_seconds for line in lines),
                "charged_micro_credits": sum(line.charged for line in lines),
                "items": [shape.line_json(line) for line in lines],
            }
        )

    def period(self) -> Period:
        """[from, to); by default the present month of the site, or the one that the only end given is in, where that
        month is later (`from`) or earlier (`to`). Raises `Problem`."""
        now, zone = self.parts.clock.now(), self.parts.tz
        since, until = self.moment("from"), self.moment("to")
        first = min(now, until - timedelta(microseconds=1)) if until else now
        start = since or month_of(first, zone).start
        end = until or month_of(max(now, since or now), zone).end
        if start >= end:
            raise Problem(400, Why.DATE_INVALID, "from must lie before to.")
        return Period(start, end)


class Profiles(ApiHandler):
    @endpoint()
    async def get(self) -> None:
        found = await self.in_thread(self.parts.profiles)
        self.send({"items": [shape.profile_json(profile) for profile in found]})


class Leases(ApiHandler):
    @endpoint()
    async def get(self) -> None:
        user: str | None = self.get_query_argument("user", "") or None
        if not self.viewer.admin:
            if user not in (None, self.viewer.name):
                raise Problem(403, Why.FORBIDDEN, "These leases are somebody else's.")
            user = self.viewer.name
        limit, before = self.number("limit", 100, 1, LARGEST_PAGE), self.before()
        leases = await self.in_thread(self.parts.book.leases, user=user, limit=limit, before=before)
        seen = await self.in_thread(snapshot, self.parts, leases)
        self.send({"items": [self.shape_of(lease, seen) for lease in leases]})

    def before(self) -> datetime | str | None:
        """Where a page ends: the id of a lease (exact), or a moment. Raises `Problem`."""
        text = self.get_query_argument("before", "")
        return text if re.fullmatch(r"l[0-9a-f]{16}", text) else self.moment("before")


class OneLease(ApiHandler):
    @endpoint()
    async def get(self, lease_id: str) -> None:
        await self.send_lease(await actions.lease_for(self, lease_id))

    @endpoint()
    async def delete(self, lease_id: str) -> None:
        self.body()
        lease = await actions.stop_lease(self, lease_id)
        await self.send_lease(lease, 202 if lease.live else 200)


class StopLease(ApiHandler):
    @endpoint()
    async def post(self, lease_id: str) -> None:
        self.body()
        lease = await actions.stop_lease(self, lease_id)
        await self.send_lease(lease, 202 if lease.live else 200)


class RefundLease(ApiHandler):
    @endpoint(admin=True)
    async def post(self, lease_id: str) -> None:
        content = self.body("amount_micro_credits", "credits", "note")
        amount, note = fields.amount(content, optional=True), fields.text(content, "note", 500)
        done = await actions.refund_lease(self, lease_id, amount, note)
        self.send({"lease_id": lease_id, "refunded_micro_credits": done})


class Accounts(ApiHandler):
    @endpoint(admin=True)
    async def get(self) -> None:
        found = await self.in_thread(self.parts.bank.accounts)
        self.send({"items": [shape.account_json(view) for view in found]})


class Account(ApiHandler):
    @endpoint()
    async def get(self, name: str) -> None:
        self.send(shape.account_json(await self.account_view(name)))


class Grants(ApiHandler):
    @endpoint()
    async def get(self, name: str) -> None:
        view = await self.account_view(name)
        self.send({"items": [shape.bucket_json(bucket) for bucket in view.buckets]})

    @endpoint(admin=True)
    async def post(self, name: str) -> None:
        content = self.body("amount_micro_credits", "credits", "note", "key")
        amount, note = fields.amount(content), fields.text(content, "note", 500)
        assert amount is not None
        key = fields.key(self.request.headers.get("Idempotency-Key"), content)
        account = (await self.account_view(name)).account.name
        bucket = await self.in_thread(
            self.parts.bank.grant, account, amount, by=self.viewer.name, note=note, key=key and f"api:{key}"
        )
        view = await self.in_thread(self.parts.bank.account, account)
        answer = {"bucket": bucket, "amount_micro_credits": int(amount), "account": shape.account_json(view)}
        self.send(answer, 201)


class LimitsOf(ApiHandler):
    """Limits of one account, or of everybody without their own ("*", for administrators)."""

    async def name_of(self, name: str) -> str:
        if name == "*":
            self.need_admin()
            return name
        return (await self.account_view(name)).account.name

    @endpoint()
    async def get(self, name: str) -> None:
        found = await self.in_thread(self.parts.bank.limits, await self.name_of(name))
        self.send(shape.limits_json(found))

    @endpoint(admin=True)
    async def put(self, name: str) -> None:
        content = self.body("max_servers", "max_gpu_milli", "monthly_micro_credits", "profiles")
        if not content:
            raise fields.wrong("limits", "nothing to set was sent")
        known = {profile.name for profile in await self.in_thread(self.parts.profiles)}
        limits = read_limits(content, known)
        account = await self.name_of(name)
        await self.in_thread(self.parts.bank.set_limits, account, limits, by=self.viewer.name)
        self.send(shape.limits_json(await self.in_thread(self.parts.bank.limits, account)))


class MonthlyGrantOf(ApiHandler):
    """What an account, or everybody ("*"), is given each month from the next one on."""

    @endpoint(admin=True)
    async def get(self, name: str) -> None:
        await self._send(await self._account(name))

    @endpoint(admin=True)
    async def put(self, name: str) -> None:
        amount = fields.integer(self.body("micro_credits"), "micro_credits", 0, fields.LARGEST_AMOUNT)
        account = await self._account(name)
        await self.in_thread(self.parts.bank.set_monthly_grant, account, amount, by=self.viewer.name)
        await self._send(account)

    async def _account(self, name: str) -> str:
        return name if name == "*" else (await self.account_view(name)).account.name

    async def _send(self, account: str) -> None:
        self.send({"account": account, "micro_credits": await self.in_thread(self.parts.bank.monthly_grant, account)})


def read_limits(content: dict[str, Any], known: set[str]) -> dict[str, Any]:
    """The limits that were sent, null for no limit, in the book's words. Raises `Problem`."""
    limits: dict[str, Any] = {}
    for name, word, most in (
        ("max_servers", "max_servers", MOST_SERVERS),
        ("max_gpu_milli", "max_gpu_milli", MOST_GPU_MILLI),
        ("monthly_micro_credits", "monthly_micro", fields.LARGEST_AMOUNT),
    ):
        if name in content:
            limits[word] = None if content[name] is None else fields.integer(content, name, 0, most)
    if "profiles" in content:
        limits["profiles"] = _profile_names(content["profiles"], known)
    return limits


def _profile_names(names: Any, known: set[str]) -> frozenset[str] | None:
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise fields.wrong("profiles", "a list of names, or null, is needed")
    strange = sorted(set(names) - known)
    if strange:
        raise fields.wrong("profiles", f"{strange[0][:40]!r} is no profile; known: {', '.join(sorted(known))}")
    return frozenset(names)


class Prices(ApiHandler):
    @endpoint()
    async def get(self) -> None:
        self.send(shape.price_json(await self.in_thread(self.parts.bank.price)))

    @endpoint(admin=True)
    async def put(self) -> None:
        content = self.body("gpu_hour_micro_credits", "cpu_hour_micro_credits")
        gpu, cpu = (fields.integer(content, f"{kind}_hour_micro_credits", 0, 10**12) for kind in ("gpu", "cpu"))
        self.send(shape.price_json(await self.in_thread(self.parts.bank.set_price, gpu, cpu, by=self.viewer.name)))


class Fleet(ApiHandler):
    @endpoint()
    async def get(self) -> None:
        devices = await self.in_thread(self.parts.rows.devices)
        live = await self.in_thread(self.parts.book.live)
        words = self.parts.isolation_words
        self.send({"items": [shape.fleet_json(device, words(device.mode), live) for device in devices]})


class KitSignals(ApiHandler):
    """Where the kit of a user's server reports, with that server's token and for that server alone."""

    @endpoint(public=True)
    async def post(self) -> None:
        token = HubAuth.get_token(self.hub_auth, self, in_cookie=False)
        try:
            model = await self.hub_auth.user_for_token(token, sync=False) if token else None
        except HTTPError as error:
            raise HubUnavailable(str(error.log_message)) from None
        holder = kit.holder_of(model)
        now = self.parts.clock.now()
        payload = kit.read_signals(self.any_body(), now)
        lease = await self.in_thread(self.parts.book.live_of, holder)
        if lease is None:
            raise Problem(404, Why.NO_LEASE, "This server holds no lease.")
        await self.in_thread(self.parts.rows.put_signal, lease.id, "kit", payload, now)
        verdict = await self.in_thread(self.parts.rows.verdict, lease.id)
        self.send({"lease_id": lease.id, "at": instant(now), "idle": shape.verdict_json(verdict)})


class ApiNotFound(ApiHandler):
    """Every address under `api/` that is none."""

    @endpoint(public=True)
    async def get(self, *_: str) -> None:
        raise Problem(404, Why.NOT_FOUND, "There is nothing at this address.")

    head = post = put = delete = patch = options = get


_LEASE = r"leases/([A-Za-z0-9_-]{1,64})"
_ACCOUNT = r"accounts/([^/]+)"

API_ROUTES: list[tuple[str, type[ApiHandler]]] = [
    ("me", Me),
    ("me/usage", MyUsage),
    ("profiles", Profiles),
    ("leases", Leases),
    (_LEASE, OneLease),
    (_LEASE + "/stop", StopLease),
    (_LEASE + "/refund", RefundLease),
    ("accounts", Accounts),
    (_ACCOUNT, Account),
    (_ACCOUNT + "/grants", Grants),
    (_ACCOUNT + "/limits", LimitsOf),
    (_ACCOUNT + "/monthly-grant", MonthlyGrantOf),
    ("prices", Prices),
    ("fleet", Fleet),
    ("kit/signals", KitSignals),
]

__all__ = ["API_ROUTES", "ApiNotFound", "read_limits"]
