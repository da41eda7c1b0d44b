"""What a share means to the programs inside a server: the devices they see, and the limits they are asked to keep.

Limits set by environment are cooperative: a program can undo them in one line. `isolation` says so in words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from quota.i18n import N_, _
from quota.leases import Slot
from quota.units import WHOLE_GPU

#: The first PyTorch that takes the fraction from its environment (pytorch/pytorch#161035); an older one refuses an
#: option it does not know at its first CUDA call ("Unrecognized CachingAllocator option"), so it must not be given.
TORCH_TAKES_FRACTION = (2, 10)


def caps(share: int, memory_mib: int | None, *, torch_version: str | None = None) -> dict[str, str]:
    """Environment that asks frameworks to keep to a share (milli-GPU) of one device.

    `memory_mib` is the *whole* device's memory, None when unknown; `torch_version` that of the PyTorch in the image,
    None when there is none or it is unknown. Empty for whole GPUs and CPU profiles. Every name covers one allocator
    of one process: the in-server kit reads the BERTH names and does the same from code where the environment is not
    enough.
    """
    if not 0 < share < WHOLE_GPU:
        return {}
    fraction = f"{share / WHOLE_GPU:.3f}".rstrip("0")
    env = {
        "XLA_CLIENT_MEM_FRACTION": fraction,
        "XLA_PYTHON_CLIENT_MEM_FRACTION": fraction,  # the name before
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "BERTH_GPU_SHARE_MILLI": str(share),
    }
    if memory_mib is None:
        env["CUPY_GPU_MEMORY_LIMIT"] = f"{share / 10:g}%"
    else:
        mine = memory_mib * share // WHOLE_GPU
        env["CUPY_GPU_MEMORY_LIMIT"] = str(mine * 1024 * 1024)  # bytes
        env["BERTH_GPU_MEMORY_MIB"] = str(mine)
    if _takes_fraction(torch_version):
        env["PYTORCH_ALLOC_CONF"] = env["PYTORCH_CUDA_ALLOC_CONF"] = f"per_process_memory_fraction:{fraction}"
    return env


def _takes_fraction(version: str | None) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", version or "")
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= TORCH_TAKES_FRACTION


def device_env(slots: Sequence[Slot]) -> dict[str, str]:
    """Environment that shows a server exactly the devices of its lease, by UUID.

    A CPU profile sees none, whatever the image says: CUDA images carry `NVIDIA_VISIBLE_DEVICES=all`, and only "void"
    keeps the container toolkit away; an empty `CUDA_VISIBLE_DEVICES` hides devices from CUDA itself.
    """
    uuids = [slot.device for slot in slots if slot.device is not None and slot.share > 0]
    if len(set(uuids)) != len(uuids):
        raise ValueError("a lease has the same device twice")
    joined = ",".join(uuids)
    return {
        "CUDA_VISIBLE_DEVICES": joined,
        "NVIDIA_VISIBLE_DEVICES": joined or "void",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


@dataclass(frozen=True, slots=True)
class Isolation:
    """What a sharing mode really enforces between those who share: a class and one honest sentence."""

    word: str  # hard, firm, cooperative, none
    first: str
    second: str = ""

    @property
    def sentence(self) -> str:
        """One or two, in the reader's language."""
        return f"{_(self.first)} {_(self.second)}" if self.second else _(self.first)

    def __str__(self) -> str:
        return _("%(word)s: %(sentence)s", word=_(self.word), sentence=self.sentence)


_CPU = Isolation(N_("none"), N_("CPU only: no GPU is given, and there is none to divide."))
_UNKNOWN = Isolation(N_("none"), N_("Nothing keeps those who share this GPU apart."))
_WHOLE = Isolation(N_("hard"), N_("A whole GPU: no other server can open it while you hold it."))
_WHOLE_UNFENCED = Isolation(
    N_("cooperative"),
    N_(
        "A whole GPU: nobody else is placed on it while you hold it, but all servers run as one system user, and "
        "nothing stops a program that opens a GPU it was not given."
    ),
)
_UNFENCED = N_("All servers run as one system user, and nothing stops a program that opens a GPU it was not given.")
_PART: Mapping[str, Isolation] = MappingProxyType(
    {
        "mig": Isolation(N_("hard"), N_("The GPU itself divides memory and compute; a neighbour cannot take yours.")),
        "mps": Isolation(
            N_("firm"),
            N_(
                "The driver limits memory and compute of each process, but several processes of one server add up, and "
                "a neighbour's crash can stop your work."
            ),
        ),
        "time-slice": Isolation(
            N_("cooperative"),
            N_(
                "Frameworks are asked to keep to their part of the memory; a program that ignores this can take more, "
                "and compute time is shared with the neighbours."
            ),
        ),
    }
)


def isolation(mode: str, share: int = 1, *, fenced: bool = False) -> Isolation:
    """What `mode` enforces for a share (milli-GPU; 0 for CPU, 1000 for a whole GPU).

    `fenced` tells that the runtime hides other devices from a server (containers do, local processes do not); without
    it nothing is better than cooperative. A mode that is not known promises nothing.
    """
    if share == 0:
        return _CPU
    if share >= WHOLE_GPU or mode == "exclusive":
        return _WHOLE if fenced else _WHOLE_UNFENCED
    part = _PART.get(mode, _UNKNOWN)
    if fenced or part.word in ("cooperative", "none"):
        return part
    return Isolation("cooperative", part.first, _UNFENCED)
