"""Sentences that are written into the book, and told again in the language of whoever reads them. Pure.

The book, the logs and the command line have them in English: that is their machine form, and `retold` finds the
message and its values in it. Whoever writes such a sentence takes it from here, so that both stay the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from functools import lru_cache
from typing import Final

from quota import i18n
from quota.i18n import N_, _

__all__ = ["booked", "retold", "span"]

_PLACE = re.compile(r"%\((\w+)\)s|%%")
#: Values of these names are numbers; of all others any text, which is told again itself.
_NUMBERS: Final = ("seconds", "minutes", "hours", "days", "percent", "number", "code")
_MESSAGES: Final[list[str]] = []
_LONGEST: Final = 2000
_DEEPEST: Final = 5


def booked(message: str) -> str:
    """Marks a message, perhaps with `%(name)s`, that is written into the book and told again."""
    _MESSAGES.append(message)
    return message


# ---- the idle rule's verdicts ------------------------------------------------------------------------------------

NOT_STOPPED = booked("Idle servers of this kind are not stopped")
BLIND = booked("blind: %(unknown)s; what is unknown never counts as idle, so the server is kept")
NOT_USED = booked("Not used since %(time)s UTC (%(span)s): %(quiet)s; %(rule)s")
RULE_WITH_GPU = booked("servers with a GPU are stopped after %(span)s without use (%(key)s)")
RULE_WITHOUT_GPU = booked("servers without a GPU are stopped after %(span)s without use (%(key)s)")
GPU_NOT_USED = booked("Its GPU is held and not used since %(time)s UTC (%(span)s); %(rule)s")
RULE_GPU_IDLE = booked("GPUs that are held are given back after %(span)s without use (%(key)s)")
AGED = booked("Running since %(time)s UTC (%(span)s): %(rule)s")
RULE_MAX_AGE = booked("servers of this kind are stopped %(span)s after their start (%(key)s)")
SHUTDOWN_SET = booked("Its user asked for it to be stopped at %(time)s UTC")
WORK_DONE = booked("Its user asked for it to be stopped when its work is done; nothing has run since %(time)s UTC")
WHEN_DONE = booked("it is stopped as soon as nothing runs, as its user asked")
WHEN_DONE_LIVING = booked("it is stopped as soon as nothing runs, as its user asked (programs that live: %(number)s)")
WHEN_DONE_UNSEEN = booked(
    "it is stopped as soon as nothing runs, as its user asked (whether programs live cannot be seen)"
)
KEPT = booked("Not used, and kept until %(time)s UTC as its user asked")
WATCHED = booked("Watched without a gap since %(time)s UTC and not used meanwhile")
LAST_USED = booked("Last used %(span)s ago")
USED_NOW = booked("Last used just now")
KERNEL_RUNS = booked("In use: a kernel has been running code")
KERNEL_RUNS_SINCE = booked("In use: a kernel has been running code since %(time)s UTC (%(span)s)")
PROGRAMS_RUN = booked("In use: its programs use %(percent)s %% of a CPU core")
PROGRAMS_MOVE = booked("In use: its programs read and write %(number)s KiB a second")
GPU_RUNS = booked("In use: its GPU is at %(percent)s %%")
NO_CODE = booked("no code ran")
CPU_QUIET = booked("its programs used at most %(percent)s %% of a CPU core")
IO_QUIET = booked("its programs read and wrote next to nothing")
GPU_UNUSED = booked("its GPU has not computed for %(span)s")
GPU_QUIET = booked("its GPU did not compute")
GPU_SIMULATED = booked("its GPU is simulated and tells nothing")
GPU_SHARED = booked("its GPU is shared and tells nothing")

IO_NOT_MEASURED = booked("not measured")
ALERT_KEEP_BUSY = booked(
    "The server of %(user)s with the profile %(profile)s is suspected of only keeping its GPU busy: since %(time)s UTC "
    "at a constant %(percent)s %%, while its GPU memory was not touched and no cell ran. Nothing is stopped for it."
)
ALERT_GPU_UNUSED = booked(
    "The server of %(user)s with the profile %(profile)s works, but its GPU has not computed for %(span)s. It is in "
    "use and not stopped; its user may do as well without a GPU."
)
ALERT_BLIND = booked(
    "Running servers that cannot be judged: %(number)s. Something that should be known of them is not, so they are "
    "kept however idle they are; the board says what is missing."
)

NO_START = booked("its start is not on record")
KERNEL_UNSEEN = booked("the state of a kernel cannot be seen")
KERNELS_UNSEEN = booked("the state of %(number)s kernels cannot be seen")
GAP = booked("it was not watched without a gap")
KERNELS_UNREAD = booked("its list of kernels cannot be read")
CPU_UNREAD = booked("the CPU use could not be measured")
IO_UNREAD = booked("what its programs read and write could not be measured")
GPU_UNREAD = booked("the GPU's utilisation could not be read")
KIT = booked("the notebook server's kit")
AGENT = booked("the host's agent")
GPU_READER = booked("the host's GPU reader")
SILENT = booked("%(source)s has not reported")
UNREADABLE = booked("the report of %(source)s cannot be read")
LATE = booked("%(source)s last reported %(seconds)s s ago")
AHEAD = booked("the last report of %(source)s bears a time %(seconds)s s ahead, so its age is not known")
HUB_SILENT = booked("the Hub does not tell")
HUB_UNASKED = booked("the Hub was not asked")
HUB_NONE = booked("the Hub knows of none")

# ---- lengths of time in them -------------------------------------------------------------------------------------

SECONDS = booked("%(seconds)s s")
MINUTES = booked("%(minutes)s min")
HOURS = booked("%(hours)s h")
HOURS_MINUTES = booked("%(hours)s h %(minutes)s min")
DAYS = booked("%(days)s d")
DAYS_HOURS = booked("%(days)s d %(hours)s h")


def span(length: timedelta) -> str:
    """A length of time for people: "45 s", "29 min", "5 h 12 min", "4 d 2 h"."""
    seconds = max(0, int(length.total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 2:
        return SECONDS % {"seconds": seconds}
    if hours < 1:
        return MINUTES % {"minutes": minutes}
    if days < 1:
        return (HOURS_MINUTES if minutes % 60 else HOURS) % {"hours": hours, "minutes": minutes % 60}
    return (DAYS_HOURS if hours % 24 else DAYS) % {"days": days, "hours": hours % 24}


# ---- why a lease ended -------------------------------------------------------------------------------------------

CREDIT_GONE = booked("the credit of %(account)s is used up")
MONTH_GONE = booked("the monthly limit of %(account)s is used up")
BERTH_STOPS = booked("Berth was told to stop")
LEFT_BEHIND = booked("a new start of the same server found it left behind")
CANCELLED = booked("the start was cancelled")
FAILED_AFTER = booked("the start failed after the server had answered")
HUB_GONE = booked("the hub that was starting it is gone")
NOT_READY = booked("it was not ready in time")
GONE = booked("it is gone; charged to when it was last seen")
NO_RECORD = booked("it ended without a record; charged to when it was last seen")
FROM_INSIDE = booked("ended from inside")
ENDED = booked("it ended")
START_FAILED = booked("the start failed: %(reason)s")
SIGNAL = booked("signal %(number)s")
OUT_OF_MEMORY = booked("it needed more memory than its profile has, and was ended")
EXIT_CODE = booked("exit code %(code)s")

# ---- what people are told: several sentences, each a line ---------------------------------------------------------

WILL_BE_IDLE = booked(
    "Your server with the profile %(profile)s is idle and will be stopped at %(deadline)s unless it is used "
    "before. %(why)s."
)
STOPS_NOW = booked("Your server with the profile %(profile)s is being stopped. %(why)s.")
CREDITS_LOW = booked(
    "%(percent)s %% of the credits for your server with the profile %(profile)s are used; %(left)s are left. "
    "Save your work in time."
)
WILL_STOP = booked(
    "Your server with the profile %(profile)s will be stopped at %(deadline)s: %(why)s. Save your work now."
)
WILL_SHUT_DOWN = booked(
    "Your server with the profile %(profile)s will be stopped at %(deadline)s, as you asked. Save your work now."
)
OVER_SHARE = booked("it uses %(used)s MiB of GPU memory, and its share is %(limit)s MiB")
WILL_BE_OVER = booked(
    "Your server with the profile %(profile)s will be stopped at %(deadline)s unless it frees GPU memory: %(why)s. "
    "Save your work, and restart the kernel that holds the memory."
)
IS_OVER = booked(
    "Your server with the profile %(profile)s takes GPU memory that is others': %(why)s. Restart the kernel that holds "
    "the memory."
)
HAS_ENDED = booked("Your server with the profile %(profile)s ended at %(moment)s. %(what)s.")
HAS_ENDED_WHY = booked("Your server with the profile %(profile)s ended at %(moment)s. %(what)s: %(why)s.")
HAS_COST = booked("It ran for %(span)s and cost %(amount)s credits.")
NOTHING_HEARD = booked("No saving was reported.")
SAVING_CUT = booked("It began to save and did not say that it was done.")
WAS_SAVED = booked("Saved: %(number)s; could not be saved: %(lost)s. The list is on its receipt.")
THINGS_SAVED = booked("Saved: %(what)s.")
THING_LOST = booked("Not saved: %(what)s (%(why)s).")
THING_LOST_SOMEHOW = booked("Not saved: %(what)s.")
APPEALED = booked("%(user)s says that the end of a server with the profile %(profile)s was wrong.")
APPEAL_GRANTED = booked(
    "You were right about the end of your server with the profile %(profile)s: %(amount)s credits were given back."
)
APPEAL_DENIED = booked("The end of your server with the profile %(profile)s stands as it was.")
APPEAL_ANSWER = booked("The administrator's answer: %(words)s")
START_DONE = booked("Your server with the profile %(profile)s was started as scheduled.")
START_NOT_DONE = booked("Your server with the profile %(profile)s could not be started as scheduled: %(why)s.")
START_MISSED = booked("Berth was not running at that time")
START_UNANSWERED = booked("the Hub did not answer")
START_BEHIND_STOP = booked("the server before it was still being stopped")
START_FORBIDDEN = booked("Berth itself may start no servers at the moment; its administrators have been told")
NO_START_SCOPE = booked(
    "Scheduled starts cannot be made: the Hub's token of service berth lacks the scope %(scope)s. Put it back into the "
    "role of that service and restart the Hub."
)
START_USER_GONE = booked("the user who asked for it was deleted since")
START_THERE = booked("it was running already")
BOOK_ALERT = booked("Needs a look: %(words)s")
TRIAL = booked("This is the test message that you asked for. Messages about your servers come the same way.")

# ---- why the kit of a server could not save something, in its own words (`berth_lab`) -------------------------------

KIT_BUSY = booked("The kernel was still busy when the time to save was over.")
KIT_BUSY_NOW = booked("The kernel is busy; save again when it is idle.")
KIT_LANGUAGE = booked("Variables are saved of Python kernels alone.")
KIT_MISSING = booked("This kernel's environment does not have Berth's kit, so its variables could not be saved.")
KIT_TIME = booked("There was no time left to save it.")
KIT_FAILED = booked("It failed; the server's log says how.")
KIT_CHECKPOINT_FAILED = booked("Its program could not write the checkpoint.")
KIT_NO_CHECKPOINT = booked("Its program did not write a checkpoint in time; what it had written before is still there.")
KIT_PROGRAM_ENDED = booked("Its program ended without saying that it had written a checkpoint.")
KIT_FILE_GONE = booked("The notebook file is no longer there.")
KIT_FOREIGN = booked("What was saved of it could have been written by somebody else, so it is not read.")
KIT_NOT_STARTED = booked("Its kernel could not be started; the server's log says why.")
KIT_UNWRITABLE = booked("The notebook file could not be written.")
KIT_CHANGED = booked("The notebook file was being written by something else.")
KIT_FORMAT = booked("The notebook file is of a format that Berth does not write.")
KIT_TERMINAL = booked("What runs in a terminal ends with the server.")
KIT_MORE = booked("And %(number)s more that are not listed.")
VARIABLE_THREAD = booked("It is or holds a running thread, which ends with the kernel.")
VARIABLE_LOCK = booked("It is or holds a lock or another means of threads to wait for each other.")
VARIABLE_QUEUE = booked("It is or holds a queue between threads or processes.")
VARIABLE_GENERATOR = booked("It is or holds a generator, whose place in its code cannot be kept.")
VARIABLE_COROUTINE = booked("It is or holds a running coroutine, task or event loop.")
VARIABLE_FRAME = booked("It is or holds a traceback or a frame of running code.")
VARIABLE_FILE = booked("It is or holds an open file; open it again.")
VARIABLE_SOCKET = booked("It is or holds a network connection; connect again.")
VARIABLE_DATABASE = booked("It is or holds a connection to a database; connect again.")
VARIABLE_PROCESS = booked("It is or holds a running process or a pool of workers.")
VARIABLE_WEAKREF = booked("It is or holds a weak reference.")
VARIABLE_MAP = booked("It is or holds memory that is mapped from a file or shared with other processes.")
VARIABLE_WIDGET = booked("It is or holds a widget, which is bound to the page that shows it.")
VARIABLE_DEVICE = booked("It is or holds something of a GPU other than data, such as a stream.")
VARIABLE_LARGE = booked("It is larger than what may be saved.")
VARIABLE_MEMORY = booked("There was not enough memory to save it.")
VARIABLE_DISK = booked("There was no room left on the disk.")
VARIABLE_DEEP = booked("It is nested too deeply.")
VARIABLE_CLASS = booked("Its class does not allow it to be saved.")

# ---- why something that was sent cannot be used ------------------------------------------------------------------

TOO_LONG = booked("longer than %(number)s characters")
NAME_TOO_LONG = booked("it is longer than %(number)s characters")
NAME_SIGN = booked("it contains %(sign)s")

_LISTS = (("; ", N_("%(one)s; %(more)s")), (", ", N_("%(one)s, %(more)s")))


def retold(words: str) -> str:
    """Words of the book in the language of this context, line by line. What nobody knows here stays as it is."""
    if i18n.language() == next(iter(i18n.LANGUAGES)) or len(words) > _LONGEST:
        return words
    return "\n".join(_retold(line, _DEEPEST) for line in words.split("\n"))


def _retold(words: str, depth: int) -> str:
    if not words or not depth:
        return words
    for pattern, message in _patterns():
        found = pattern.fullmatch(words)
        if found:
            values = {name: _retold(value, depth - 1) for name, value in found.groupdict().items()}
            return _(message, **values) if "%" in message else _(message)
    for sign, joined in _LISTS:
        if sign in words:
            return _joined([_retold(part, depth - 1) for part in words.split(sign)], joined)
    return _(words)


def _joined(parts: Iterable[str], message: str) -> str:
    first, *rest = parts
    for part in rest:
        first = _(message, one=first, more=part)
    return first


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[re.Pattern[str], str], ...]:
    """The longest first: it says most."""
    return tuple((re.compile(_pattern(message), re.S), message) for message in sorted(_MESSAGES, key=len, reverse=True))


def _pattern(message: str) -> str:
    found, at = "", 0
    for place in _PLACE.finditer(message):
        found += re.escape(message[at : place.start()])
        at, name = place.end(), place[1]
        found += "%" if name is None else f"(?P<{name}>[0-9.]+)" if name in _NUMBERS else f"(?P<{name}>.+?)"
    return found + re.escape(message[at:])
