"""Profiles: what a user picks, and the one place where the options of a start are validated.

Form, REST and admin starts all come through `parse_choice`: the Hub runs no `options_from_form` for a REST start.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from quota.errors import Reason, Refused
from quota.groups import Group, leads_of, payers_of
from quota.i18n import N_, _
from quota.leases import Device
from quota.told import TOO_LONG
from quota.units import WHOLE_GPU, MilliGpu, show_share

#: The options of a start, all of them optional strings. Later ones are added here and nowhere else.
OPTIONS = ("profile", "image", "payer")

#: No name of ours is longer; a longer value is refused before it is looked at.
MAX_VALUE = 255

#: The share of a CPU profile.
NO_GPU = MilliGpu(0)

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Profile:
    """What a user picks.

    `share` is milli-GPU on each device and `count` the number of devices; both are 0 for a CPU profile. More than one
    device means whole ones. `cpu` is in cores, `memory_mib` in MiB of host memory; None sets no limit. An empty
    `images` allows every image of the catalogue; empty `groups` let everybody pick it. `egress` is what a container may
    reach (`spawner.egress`).

    Raises `ValueError`, in words for the file that defines profiles, when the values make no sense together.
    """

    name: str
    title: str
    share: MilliGpu = NO_GPU
    count: int = 0
    cpu: float | None = None
    memory_mib: int | None = None
    images: tuple[str, ...] = ()
    description: str = ""
    service_class: str = "on-demand"
    groups: tuple[str, ...] = ()
    egress: str = "open"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not a name for a profile: lower-case letters, digits, '.', '_' and '-'")
        if not self.title.strip():
            raise ValueError(f"profile {self.name!r} has no title")
        self._check_share()
        if self.cpu is not None and not 0 < self.cpu <= 4096:
            raise ValueError(f"profile {self.name!r}: {self.cpu} is not a number of CPU cores")
        if self.memory_mib is not None and self.memory_mib <= 0:
            raise ValueError(f"profile {self.name!r}: {self.memory_mib} MiB is not an amount of memory")

    def _check_share(self) -> None:
        if (self.share == 0) != (self.count == 0):
            raise ValueError(f"profile {self.name!r}: share and count are both 0 (CPU only) or both set")
        if not 0 <= self.share <= WHOLE_GPU:
            raise ValueError(f"profile {self.name!r}: a share is 1 to {WHOLE_GPU} milli-GPU, not {self.share}")
        if self.count < 0:
            raise ValueError(f"profile {self.name!r}: {self.count} is not a number of GPUs")
        if self.count > 1 and self.share != WHOLE_GPU:
            raise ValueError(f"profile {self.name!r}: several GPUs are whole ones (share = {WHOLE_GPU})")

    @property
    def weight(self) -> MilliGpu:
        """Milli-GPU over all devices."""
        return MilliGpu(self.share * self.count)

    @property
    def fractional(self) -> bool:
        """Whether it is a part of one GPU, which other servers share."""
        return 0 < self.share < WHOLE_GPU

    @property
    def share_words(self) -> str:
        """The share for people: "1/8 GPU", "2 GPUs", "CPU only"."""
        return show_share(self.share, self.count)


#: The profiles of a fresh installation; the first one is what a start without options gets.
DEFAULT_PROFILES: tuple[Profile, ...] = (
    Profile("cpu", N_("CPU only"), description=N_("No GPU: for reading, writing and preparing data.")),
    Profile("gpu-1-8", N_("1/8 GPU"), MilliGpu(125), 1, description=N_("An eighth of a GPU: for trying things out.")),
    Profile("gpu-1-4", N_("1/4 GPU"), MilliGpu(250), 1, description=N_("A quarter of a GPU: for small models.")),
    Profile("gpu-1-2", N_("1/2 GPU"), MilliGpu(500), 1, description=N_("Half a GPU: for middle-sized models.")),
    Profile("gpu-1", N_("1 GPU"), WHOLE_GPU, 1, description=N_("A whole GPU that nobody else uses meanwhile.")),
    Profile(
        "gpu-2", N_("2 GPUs"), WHOLE_GPU, 2, description=N_("Two whole GPUs of one machine, for training on both.")
    ),
)


@dataclass(frozen=True, slots=True)
class Choice:
    """A valid start: what to run, in which image, and who pays."""

    profile: Profile
    image: str
    account: str

    def options(self) -> dict[str, str]:
        """The same as user options, complete; parsing them again gives the same choice."""
        return {"profile": self.profile.name, "image": self.image, "payer": self.account}


def parse_choice(
    options: Mapping[str, object],
    profiles: Sequence[Profile],
    images: Collection[str],
    *,
    user: str,
    groups: Collection[str] = (),
    sites: Sequence[Group] = (),
    hidden: Collection[str] = (),
) -> Choice:
    """The options of a start as a choice, or `Refused` with a reason; total for any value whatever.

    `options` has no keys but `OPTIONS`, and strings as values; a form's one-element lists are flattened before. What
    is not sent gets its default (also where nothing is sent at all, as when an admin starts somebody's server): the
    first profile open to them, its first image, the account of `user`, for whom the server starts. `groups` are those
    they are in at this moment (whoever asks), `sites` the groups that the site knows: those of both that pay may be
    charged, too. `hidden` names profiles that there are and that this user is not offered. Whether limits allow a
    profile and whether it can be paid is the book's to say.

    Raises `Refused`: OPTION_UNKNOWN (facts `option`, `known`), OPTION_INVALID (`option`, `why`), PROFILE_UNKNOWN
    (`profile`, `known`), PROFILE_FORBIDDEN (`profile`, `groups`, `ask`, `allowed`), IMAGE_UNKNOWN (`image`, `profile`,
    `known`), ACCOUNT_FORBIDDEN (`account`, `allowed`; the same for an account that does not exist, so that nobody can
    find out which do).
    """
    sent = _strings(options)
    profile = _profile(sent.get("profile"), profiles, groups, sites, hidden)
    image = _image(sent.get("image"), profile, images)
    return Choice(profile, image, _payer(sent.get("payer", user), (user, *payers_of(sites, groups))))


def _payer(account: str, allowed: Sequence[str]) -> str:
    if account not in allowed:
        raise Refused(Reason.ACCOUNT_FORBIDDEN, account=account, allowed=", ".join(allowed))
    return account


def _strings(options: object) -> dict[str, str]:
    if not isinstance(options, Mapping):
        raise Refused(Reason.OPTION_INVALID, option="user_options", why=N_("not a set of named options"))
    sent: dict[str, str] = {}
    for key, value in options.items():
        if not isinstance(key, str) or key not in OPTIONS:
            raise Refused(Reason.OPTION_UNKNOWN, option=_shown(key), known=", ".join(OPTIONS))
        why = _fault(value)
        if why:
            raise Refused(Reason.OPTION_INVALID, option=key, why=why)
        sent[key] = str(value)
    return sent


def _fault(value: object) -> str:
    if not isinstance(value, str):
        return N_("not text")
    if not value:
        return N_("empty")
    if len(value) > MAX_VALUE:
        return TOO_LONG % {"number": MAX_VALUE}
    if not value.isprintable():
        return N_("not plain text: it contains a control character")
    return ""


def _shown(key: object) -> str:
    """A key of any kind and length, short enough and printable for a message."""
    text = key if isinstance(key, str) else type(key).__name__
    text = "".join(sign if sign.isprintable() else "?" for sign in text[:40])
    return text or "(empty)"


def open_profiles(profiles: Iterable[Profile], groups: Collection[str]) -> tuple[Profile, ...]:
    """Those that a member of these groups may pick."""
    return tuple(profile for profile in profiles if not profile.groups or not set(profile.groups).isdisjoint(groups))


def _profile(
    name: str | None,
    profiles: Sequence[Profile],
    groups: Collection[str],
    sites: Sequence[Group],
    hidden: Collection[str],
) -> Profile:
    allowed = open_profiles(profiles, groups)
    names = ", ".join(profile.name for profile in allowed)
    if name is None and allowed:
        return allowed[0]
    wanted = next((profile for profile in profiles if name in (None, profile.name)), None)
    if wanted is None and (name in hidden or (name is None and hidden)):
        raise Refused(Reason.PROFILE_FORBIDDEN, profile=name or "", allowed=names)
    if wanted is None:
        raise Refused(Reason.PROFILE_UNKNOWN, profile=name or "", known=names)
    if wanted in allowed:
        return wanted
    ask = ", ".join(leads_of(sites, wanted.groups))
    raise Refused(
        Reason.PROFILE_FORBIDDEN, profile=wanted.name, groups=", ".join(wanted.groups), ask=ask, allowed=names
    )


def images_of(profile: Profile, images: Iterable[str]) -> tuple[str, ...]:
    """The images that this profile may run, in the order a person sees them; the first is the default."""
    names = tuple(images)
    if not profile.images:
        return names
    return tuple(name for name in profile.images if name in names)


def _image(name: str | None, profile: Profile, images: Collection[str]) -> str:
    allowed = images_of(profile, images)
    if name is None and allowed:
        return allowed[0]
    if name is None or name not in allowed:
        raise Refused(Reason.IMAGE_UNKNOWN, image=name or "", profile=profile.name, known=", ".join(allowed))
    return name


@dataclass(frozen=True, slots=True)
class MemoryRange:
    """GPU memory that a profile means on the devices of the site: from the smallest to the largest card, MiB, all its
    devices together. `partial` tells that some card's memory is unknown."""

    low_mib: int
    high_mib: int
    partial: bool = False


def _may_be(profile: Profile, device: Device) -> bool:
    """Whether a server of the profile may be placed there at all: on a part that MIG made if it is large enough, never
    on the card that is divided."""
    return device.mode != "mig" or (profile.fractional and device.capacity >= profile.share)


def profile_memory(devices: Iterable[Device], profile: Profile) -> MemoryRange | None:
    """The GPU memory that a profile means here; None for a CPU profile, and where no card's memory is known."""
    if not profile.share:
        return None
    amounts = [device.memory_for(profile.share) for device in devices if _may_be(profile, device)]
    known = [amount * profile.count for amount in amounts if amount is not None]
    if not known:
        return None
    return MemoryRange(min(known), max(known), partial=len(known) < len(amounts))


def memory_words(memory: MemoryRange | None) -> str:
    """For people: "about 3 GB of GPU memory", "3 to 10 GB of GPU memory, depending on the card", "" where unknown."""
    if memory is None:
        return ""
    low, high = show_gb(memory.low_mib), show_gb(memory.high_mib)
    if low == high:
        return (
            _("about %(amount)s of GPU memory, where it is known", amount=low)
            if memory.partial
            else _("about %(amount)s of GPU memory", amount=low)
        )
    low = low.removesuffix(" GB")
    return (
        _("%(low)s to %(high)s of GPU memory, depending on the card, where it is known", low=low, high=high)
        if memory.partial
        else _("%(low)s to %(high)s of GPU memory, depending on the card", low=low, high=high)
    )


def show_gb(mib: int) -> str:
    """MiB as people speak of cards: 24576 is "24 GB"; under 10 GB with one decimal place where it has one."""
    gib = mib / 1024
    number = f"{gib:.1f}".removesuffix(".0") if gib < 10 else f"{gib:.0f}"
    return f"{number} GB"
