"""The pages: what a user used and holds, who holds what, receipts, and the admin's desk. Words and figures come
from `quota.web.views`; this file only speaks HTTP."""

from __future__ import annotations

import json
import logging
import secrets
from typing import Any
from urllib.parse import urlencode

from jupyterhub.services.auth import HubOAuthCallbackHandler
from tornado.web import Finish

from quota import tracing
from quota.errors import BerthError
from quota.groups import group_of, no_payer
from quota.i18n import _
from quota.leases import StopReason
from quota.said import sentences
from quota.units import show_credits
from quota.web import actions, board, desk, fields, looking_back, views
from quota.web.base import Handler, endpoint
from quota.web.card import card_of, doubts
from quota.web.export import to_csv
from quota.web.group_views import address_of, groups_for
from quota.web.notice_views import GlanceView, glance
from quota.web.parts import Viewer
from quota.web.period import Period, month_of, parse_month
from quota.web.problem import Problem, Why, problem_text
from quota.web.render import Pages, asset_hash

log = logging.getLogger("berth.web")

FLASH = "berth-flash"
#: Of a server's log on its receipt: the end tells why it ended.
LOG_LINES = 100


class PageHandler(Handler):
    """Base of pages: log-in by the Hub's OAuth, one look, errors in words."""

    told = GlanceView()

    def set_default_headers(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "same-origin")
        # For redirects and files; `page` says what a page may load.
        self.set_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")

    @property
    def prefix(self) -> str:
        return str(self.application.settings["berth_prefix"])

    @property
    def hub_base(self) -> str:
        return str(self.hub_auth.hub_host + self.hub_auth.hub_prefix)

    async def sign_in(self) -> Viewer:
        viewer = await self.identify()
        if viewer is not None:
            await self.look_at_notices(viewer)
            return viewer
        if self.request.method in ("GET", "HEAD") and not self.cookie_refused():
            self.redirect(self.get_login_url())
            raise Finish
        raise Problem(
            403, Why.XSRF, _("This form is too old, or did not come from this page. Reload it and send it again.")
        )

    async def look_at_notices(self, viewer: Viewer) -> None:
        """What the head of a page shows of them; a book that does not answer is the page's own matter to tell."""
        if self.request.method in ("GET", "HEAD"):
            try:
                self.told = await self.in_thread(glance, self.parts, viewer)
            except BerthError as error:
                log.warning("Unread notices cannot be counted: %s", error)

    # ---- answers ----

    def page(self, template: str, title: str, here: str = "", **values: Any) -> None:
        """Finish with a page. A message left by the request before is shown once."""
        viewer: Viewer | None = getattr(self, "viewer", None)
        source = f"'self' {self.hub_auth.hub_host}".strip()
        self.set_header(
            "Content-Security-Policy",
            f"default-src 'none'; script-src {source}; style-src {source}; font-src {source}; img-src {source} data:; "
            "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
        )
        pages: Pages = self.application.settings["berth_pages"]
        self.finish(
            pages.render(
                template,
                title=title,
                here=here,
                site=self.parts.site,
                zone=self.parts.zone,
                now=self.parts.clock.now(),
                prefix=self.prefix,
                hub_base=self.hub_base,
                asset=lambda name: f"{self.prefix}static/{name}?v={asset_hash(name)}",
                viewer=viewer,
                groups=groups_for(self.parts.groups, viewer),
                xsrf_token=self.xsrf_token.decode("ascii"),
                flash=self.take_flash(),
                told=self.told,
                **values,
            )
        )

    def show_problem(self, problem: Problem) -> None:
        accepted = self.request.headers.get("Accept", "")
        if "json" in accepted and "html" not in accepted:  # a program that strayed from the REST interface
            self.set_header("Content-Type", "application/problem+json")
            self.finish(problem_text(problem, tracing.request_id()))
            return
        self.page("error.html", problem.title, problem=problem)

    def done(self, words: str, path: str, kind: str = "success") -> None:
        """After a write: leave a message and go to a page, so that a reload does not write again."""
        message = json.dumps({"kind": kind, "words": words})
        self.set_secure_cookie(FLASH, message, expires_days=None, path=self.prefix, httponly=True, samesite="Lax")
        self.redirect(self.prefix + path, status=303)

    def take_flash(self) -> dict[str, str] | None:
        raw = self.get_secure_cookie(FLASH, max_age_days=0.01)
        if raw is None:
            return None
        self.clear_cookie(FLASH, path=self.prefix)
        found = json.loads(raw)
        return {"kind": str(found["kind"]), "words": str(found["words"])}

    # ---- arguments ----

    def field(self, name: str, longest: int = 255) -> str:
        """A field of a form or an address: text of a bounded length, "" where it is absent."""
        return fields.text({name: self.get_argument(name, "", strip=True)}, name, longest)

    def asked_month(self) -> Period:
        """The month in the address, or the present one. Raises `Problem`."""
        asked = self.field("month", 20)
        if not asked:
            return month_of(self.parts.clock.now(), self.parts.tz)
        try:
            return parse_month(asked, self.parts.tz)
        except ValueError as error:
            raise Problem(400, Why.DATE_INVALID, f"{error}.") from None

    async def asked_account(self) -> str:
        """Whose usage: one's own, or for an administrator that of `account`. Raises `Problem`."""
        asked = self.field("account")
        if not asked or asked == self.viewer.name:
            return self.viewer.name
        self.need_admin()
        return await actions.known_account(self, asked)


class Usage(PageHandler):
    @endpoint()
    async def get(self) -> None:
        name = await self.asked_account()
        if group_of(name) is not None and not no_payer(self.parts.groups, name):
            self.redirect(address_of(self.parts, name))
            return
        month = self.asked_month()
        view = await self.in_thread(views.usage, self.parts, name, month, own=name == self.viewer.name)
        balance = await self.in_thread(looking_back.balance_days, self.parts, name, month)
        self.page(
            "usage.html",
            _("My usage") if view.own else _("Usage of %(name)s", name=name),
            "usage" if view.own else "",
            view=view,
            balance=balance,
        )


class UsageCsv(PageHandler):
    @endpoint()
    async def get(self) -> None:
        name, period = await self.asked_account(), self.asked_month()
        rows = await self.in_thread(views.usage_table, self.parts, name, period)
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="berth-usage-{period.name}.csv"')
        self.finish(to_csv(views.USAGE_COLUMNS, rows))


class Board(PageHandler):
    @endpoint()
    async def get(self) -> None:
        view = await self.in_thread(board.board, self.parts, self.field("q", 80), self.field("page", 9))
        week = await self.in_thread(looking_back.last_week, self.parts)
        self.page("board.html", _("Who holds what"), "board", view=view, week=week)


class Receipt(PageHandler):
    @endpoint()
    async def get(self, lease_id: str) -> None:
        lease = await actions.lease_for(self, lease_id)
        view = await self.in_thread(views.receipt_of, self.parts, lease)
        log = await self.in_thread(self.parts.log_tail, lease.id, LOG_LINES)
        card = await self.in_thread(card_of, self.parts, lease, self.viewer.name)
        failed = lease.stop_reason is StopReason.FAILED
        self.page("lease.html", _("Receipt"), view=view, card=card, log=log, failed=failed)


class Stop(PageHandler):
    """Asks first, then stops."""

    @endpoint()
    async def get(self, lease_id: str) -> None:
        lease = await actions.lease_for(self, lease_id)
        row = await self.in_thread(views.one_row, self.parts, lease)
        if not row.can_stop:
            self.done(_("This server is already on its way out."), f"lease/{lease_id}", "info")
            return
        self.page("stop.html", _("Stop a server"), row=row)

    @endpoint()
    async def post(self, lease_id: str) -> None:
        lease = await actions.stop_lease(self, lease_id)
        words = _("The server is being stopped.") if lease.live else _("The server had ended already.")
        self.done(words, f"lease/{lease_id}")


class Refund(PageHandler):
    @endpoint(admin=True)
    async def post(self, lease_id: str) -> None:
        asked = self.field("credits", 30)
        amount = fields.amount({"credits": asked}) if asked else None
        done = await actions.refund_lease(self, lease_id, amount, self.field("note", 200))
        self.done(_("Refunded %(amount)s credits.", amount=show_credits(done, 6)), f"lease/{lease_id}")


class Admin(PageHandler):
    @endpoint(admin=True)
    async def get(self) -> None:
        users = await desk.hub_users(self.parts)
        chosen = self.field("account")
        view = await self.in_thread(
            desk.admin, self.parts, users, self.field("q", 80), chosen, secrets.token_hex(8), self.field("page", 9)
        )
        doubted = await self.in_thread(doubts, self.parts)
        self.page("admin.html", _("Admin · Berth"), "admin", view=view, doubted=doubted)


class AdminForm(PageHandler):
    """A form of the admin page; what is wrong with its fields comes back as a message there."""

    async def act(self) -> str:
        raise NotImplementedError

    @endpoint(admin=True)
    async def get(self) -> None:
        self.redirect(self.prefix + "admin")

    @endpoint(admin=True)
    async def post(self) -> None:
        account = self.get_argument("account", "")[:255]
        back = "admin?" + urlencode({"account": account}) if fields.is_name(account) and account != "*" else "admin"
        try:
            words, kind = await self.act(), "success"
        except Problem as problem:
            if problem.status not in (400, 404, 409):
                raise
            words, kind = sentences(_("Nothing was changed."), problem.detail), "danger"
        self.done(words, back, kind)


class Grant(AdminForm):
    async def act(self) -> str:
        amount = fields.amount({"credits": self.field("credits", 30)})
        assert amount is not None
        await actions.need_payer(self, self.field("account"))
        name = await actions.known_account(self, self.field("account"))
        key = fields.key(None, {"key": self.field("key", 64) or None})
        note = self.field("note", 200)
        await self.in_thread(
            self.parts.bank.grant, name, amount, by=self.viewer.name, note=note, key=key and f"form:{key}"
        )
        return _("Granted %(amount)s credits to %(name)s.", amount=show_credits(amount), name=name)


class SetLimits(AdminForm):
    async def act(self) -> str:
        asked = self.field("account")
        name = asked if asked == "*" else await actions.known_account(self, asked)
        texts = {key: self.field(key, 1000) for key in desk.LIMIT_FIELDS}
        limits = desk.read_limits(texts, {profile.name for profile in await self.in_thread(self.parts.profiles)})
        await self.in_thread(desk.set_limits, self.parts, name, limits, self.viewer.name)
        if name == "*":
            return _("The limits of everybody without limits of their own are set.")
        return _("The limits of %(name)s are set.", name=name)


class SetMonthlyGrant(AdminForm):
    async def act(self) -> str:
        asked = self.field("account")
        name = asked if asked == "*" else await actions.known_account(self, asked)
        amount = fields.credits_of(self.field("credits", 30), _("credits each month"))
        if amount < 0:
            raise fields.wrong(_("credits each month"), _("a grant cannot be below zero"))
        await self.in_thread(self.parts.bank.set_monthly_grant, name, amount, by=self.viewer.name)
        credits = show_credits(amount)
        if name == "*":
            return _(
                "From next month on everybody without an amount of their own will be given %(amount)s credits a month.",
                amount=credits,
            )
        return _("From next month on %(name)s will be given %(amount)s credits a month.", name=name, amount=credits)


class SetPrices(AdminForm):
    async def act(self) -> str:
        amounts = [fields.credits_of(self.field(name, 30), name) for name in ("gpu_hour", "cpu_hour")]
        if min(amounts) < 0:
            raise fields.wrong("gpu_hour" if amounts[0] < 0 else "cpu_hour", _("a price cannot be below zero"))
        await self.in_thread(self.parts.bank.set_price, amounts[0], amounts[1], by=self.viewer.name)
        return _("The prices are set. Servers that run keep theirs.")


class OAuthCallback(PageHandler, HubOAuthCallbackHandler):
    """Where the Hub sends a browser back to after its log-in; the Hub's library does the work."""

    async def prepare(self) -> None:  # type: ignore[override]  # tornado takes either
        super().prepare()
        if not self._finished:
            # Awaited here, so that `current_user` need not ask the Hub and block the loop.
            self.current_user = await self.hub_auth.get_user(self, sync=False)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        words = _("The log-in could not be finished. It may have taken too long, or its page was old. Start again.")
        self.answer_problem(Problem(502 if status_code >= 500 else status_code, Why.LOG_IN, words))


class PageNotFound(PageHandler):
    """Every address that is none."""

    @endpoint(public=True)
    async def get(self, *_path: str) -> None:
        viewer = await self.identify()
        if viewer is not None:
            self.viewer = viewer
        raise Problem(404, Why.NOT_FOUND, _("There is no page at this address."))

    head = post = put = delete = patch = options = get


LEASE = r"lease/([A-Za-z0-9_-]{1,64})"

PAGE_ROUTES: list[tuple[str, type[PageHandler]]] = [
    ("", Usage),
    ("usage", Usage),
    ("usage.csv", UsageCsv),
    ("board", Board),
    (LEASE, Receipt),
    (LEASE + "/stop", Stop),
    (LEASE + "/refund", Refund),
    ("admin", Admin),
    ("admin/grant", Grant),
    ("admin/limits", SetLimits),
    ("admin/monthly", SetMonthlyGrant),
    ("admin/prices", SetPrices),
    ("oauth_callback", OAuthCallback),
]
