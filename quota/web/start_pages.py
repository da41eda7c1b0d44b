"""The page of scheduled starts: what waits, what became of those before, and a form for a new one. Without script."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from quota.i18n import N_, _
from quota.said import sentences
from quota.schedules import LATEST, OPEN, Start, StartState
from quota.told import retold
from quota.web import start_actions
from quota.web.base import endpoint
from quota.web.fields import moment
from quota.web.lines import sentence
from quota.web.pages import PageHandler
from quota.web.parts import ProfileView
from quota.web.problem import Problem
from quota.web.start_actions import Asked
from quota.web.words import clock_words, credits_words

#: Of starts that are over so many are shown.
SHOWN = 10

_STATES = {
    StartState.WAITING: N_("waiting"),
    StartState.STARTING: N_("being started"),
    StartState.STARTED: N_("started"),
    StartState.FAILED: N_("not started"),
    StartState.MISSED: N_("missed"),
    StartState.CANCELLED: N_("cancelled"),
}


@dataclass(frozen=True, slots=True)
class StartRow:
    """One start in words; `at` is its time, `at_field` the same for a browser's field on the site's clock."""

    id: str
    server: str
    profile: str
    image: str
    payer: str
    at: datetime
    at_field: str
    state: str
    outcome: str
    waiting: bool


@dataclass(frozen=True, slots=True)
class StartsView:
    """`soonest` and `latest` bound the time on the site's clock; `chosen` is the profile that is selected, `most` how
    many may wait (0: this site schedules none), `full` that so many do."""

    coming: tuple[StartRow, ...]
    over: tuple[StartRow, ...]
    profiles: tuple[tuple[str, str], ...]
    images: tuple[tuple[str, str], ...]
    payers: tuple[tuple[str, str], ...]
    servers: tuple[tuple[str, str], ...]
    chosen: Asked
    soonest: str
    latest: str
    suggested: str
    most: int
    full: bool


class StartsPage(PageHandler):
    @endpoint()
    async def get(self) -> None:
        found = await start_actions.choices(self)
        starts = await self.in_thread(self.parts.schedules.of, self.viewer.name)
        now, tz, titles = self.parts.clock.now(), self.parts.tz, self.parts.image_titles
        rows = [start_row(each, self.viewer.name, titles.get(each.options.get("image", ""), ""), tz) for each in starts]
        coming = tuple(row for row, each in zip(rows, starts, strict=True) if each.state in OPEN)
        images = dict.fromkeys(image for profile in found.profiles for image in profile.images)
        view = StartsView(
            coming=coming,
            over=tuple(row for row, each in zip(rows, starts, strict=True) if each.state not in OPEN)[:SHOWN],
            profiles=tuple((each.name, profile_words(each)) for each in found.profiles),
            images=tuple((name, _(titles[name]) if titles.get(name) else name) for name in images),
            payers=tuple((each, start_actions.payer_words(each, self.viewer.name)) for each in found.payers),
            servers=tuple((each, each or _("Default server")) for each in found.servers),
            chosen=Asked(now, self.field("profile"), self.field("image"), self.field("payer")),
            soonest=at_field(now + timedelta(minutes=1), tz),
            latest=at_field(now + LATEST, tz),
            suggested=at_field(tomorrow(now, tz), tz),
            most=self.parts.most_starts,
            full=len(coming) >= self.parts.most_starts,
        )
        self.page("starts.html", _("Scheduled starts"), view=view)


class StartForm(StartsPage):
    """A form of that page; what is wrong comes back as a message there."""

    async def act(self) -> str:
        """Do it, and say what was done. Raises `Problem`."""
        raise NotImplementedError

    @endpoint()
    async def get(self, *_path: str) -> None:
        self.redirect(self.prefix + "starts")

    @endpoint()
    async def post(self) -> None:
        try:
            words, kind = await self.act(), "success"
        except Problem as problem:
            if problem.status not in (400, 404, 409):
                raise
            words, kind = sentences(_("Nothing was changed."), problem.detail), "danger"
        self.done(words, "starts", kind)

    def asked_time(self) -> datetime:
        return moment(self.field("at", 30), "at", self.parts.tz)


class AddStart(StartForm):
    async def act(self) -> str:
        said = [self.field(name) for name in ("profile", "image", "payer", "server")]
        asked = Asked(self.asked_time(), *said)
        start = await start_actions.add(self, asked)
        return _(
            "It will be started at %(time)s. You are told when it was, or why it was not.",
            time=clock_words(start.start_at, self.parts.tz),
        )


class MoveStart(StartForm):
    async def act(self) -> str:
        start = await start_actions.move(self, self.field("id", 64), self.asked_time())
        return _("It will be started at %(time)s instead.", time=clock_words(start.start_at, self.parts.tz))


class CancelStart(StartForm):
    async def act(self) -> str:
        start = await start_actions.cancel(self, self.field("id", 64))
        if start.state is StartState.CANCELLED:
            return _("It is cancelled; nothing will be started.")
        return _("It was over before; nothing was changed.")


def start_row(start: Start, user: str, image_title: str, zone: tzinfo) -> StartRow:
    """Pure."""
    image = start.options.get("image", "")
    return StartRow(
        id=start.id,
        server=start.server or _("Default server"),
        profile=start.profile,
        image=_(image_title) if image_title else image,
        payer=start_actions.payer_words(start.options.get("payer", user), user),
        at=start.start_at,
        at_field=at_field(start.start_at, zone),
        state=_(_STATES[start.state]),
        outcome=sentence(retold(start.outcome)) if start.outcome else "",
        waiting=start.state is StartState.WAITING,
    )


def profile_words(profile: ProfileView) -> str:
    """A profile and its price, for a list to choose from."""
    if not profile.price_per_hour_micro:
        return _("%(profile)s, free of charge", profile=_(profile.title))
    amount = credits_words(profile.price_per_hour_micro)
    return _("%(profile)s, %(amount)s credits per hour", profile=_(profile.title), amount=amount)


def at_field(at: datetime, zone: tzinfo) -> str:
    """For a browser's field for a time: to the minute, on the site's clock."""
    return at.astimezone(zone).strftime("%Y-%m-%dT%H:%M")


def tomorrow(now: datetime, zone: tzinfo) -> datetime:
    """The next morning at eight on the site's clock."""
    local = now.astimezone(zone)
    eight = local.replace(hour=8, minute=0, second=0, microsecond=0)
    return eight if eight > local else eight + timedelta(days=1)


START_ROUTES: list[tuple[str, type[PageHandler]]] = [
    ("starts", StartsPage),
    ("starts/add", AddStart),
    ("starts/move", MoveStart),
    ("starts/cancel", CancelStart),
]
