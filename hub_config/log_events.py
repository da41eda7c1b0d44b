"""What each named event of the logs means. A test holds this table against what the code writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Of Berth's own loggers. A line without one of these is named by where it comes from (`module.function`).
EVENTS: Final[Mapping[str, str]] = {
    "alert-cleared": "An alert is over.",
    "alert-raised": "Service berth found trouble that an admin should look at; the message says which.",
    "audit-failed": "The nightly audit could not be made; it is tried again.",
    "book-unavailable": "The book's database does not answer.",
    "clock-jumped": "The wall clock and the time that the machine really ran parted by more than is usual.",
    "cycle-failed": "A cycle of the agent failed; the next one comes after a pause.",
    "dispatch-failed": "Service berth could not look for scheduled starts; it looks again.",
    "hook-failed": "A hook of this site (extra_config) failed; the start or stop went its way.",
    "lease-ended": "The end of a server was seen; the line says when and why.",
    "lease-reclaimed": "The idle culler wrote that an idle server is to stop.",
    "lease-reserved": "Room and credit are set aside for a start.",
    "lease-running": "A server answered for the first time: charging begins.",
    "home-retired": "A user was deleted; what was in the home stays as the volume that the line names.",
    "lease-save-unfinished": "A server ended while its kit was still saving.",
    "lease-saved": "A server ended after its kit had said that all was saved that could be.",
    "lease-stop-requested": "Somebody asked by page or REST for a server to stop.",
    "notice-lost": "A notice could not be written into the outbox and is lost.",
    "notice-waits": "A notice waits until the book answers.",
    "notice-not-sent": "A notice could not be sent by one channel; it is tried again where it cannot have gone out.",
    "delivery-failed": "The delivery worker could not look for notices that are due, or for what is to be told.",
    "card-failed": "How one server ended could not be made into a notice; the others are told.",
    "process-begins": "A service or the agent begins its work.",
    "process-ended": "A child of `berth up` ended; it is started again.",
    "process-failed": "A process ended by an error that nobody caught; the traceback is in the line.",
    "process-started": "`berth up` started a child.",
    "request": "An answer of the Hub or of service berth, with method, path or route, status, duration and by whom.",
    "scheduled-start": "A start that somebody asked for at a time is over; the line says how.",
    "scheduled-start-failed": "A start that is due could not be looked at; it is looked at again.",
    "scrape-failed": "The book could not be read for Prometheus.",
    "scrape-slow": "The book did not answer Prometheus in time.",
    "site-rule-failed": "A function of the site (extensions) failed, hung, or gave what it may not.",
    "site-template-failed": "A page could not be made with the site's own templates; Berth's own was shown.",
    "tidy-failed": "Answers kept for idempotency keys could not be forgotten; it is tried again.",
    "up-ready": "`berth up` is ready, with the address.",
    "up-saved": "`berth up`, told to stop, let servers save; the line says how many were done in time.",
    "up-stopping": "`berth up` was told to stop.",
    "watch-failed": "Service berth could not look whether all is well; it looks again.",
}
