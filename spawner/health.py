"""What a reading of a device means for giving it out: why it must not be, and what else a person should know. Pure."""

from __future__ import annotations

from spawner.ports import GpuReading, MemoryHealth, MigPart

MIG_PARENT = "divided by MIG: it is never given out whole"
#: Slices that a card has: of memory and of compute.
_MEMORY, _COMPUTE = 8, 7
_RESET = "reset the card (nvidia-smi -r) or reboot this host"


def trouble(reading: GpuReading) -> str:
    """Why a device that answers must take no new lease all the same; "" where nothing is known against it.

    ECC errors that could not be corrected count since the driver was loaded: NVIDIA's remedy is a reset, after which
    the bad row is replaced and that counter is 0 again, while the one over the card's life never is
    (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt).
    """
    health = reading.health or MemoryHealth()
    if health.uncorrected:
        return f"{_errors(health.uncorrected)} of its memory could not be corrected; {_RESET}"
    if health.repair_failed:
        return "bad memory could not be replaced: the card has to be exchanged"
    if health.repair_pending:
        return f"bad memory waits to be replaced; {_RESET}"
    return ""


def remark(reading: GpuReading, used: int) -> str:
    """What to say of a device that is well. `used` is what leases hold of it, milli-GPU."""
    if reading.part is not None:
        return part_remark(reading.part)
    if reading.mig:
        return MIG_PARENT
    if reading.mig_pending:
        return "MIG is to be switched on at its next reset"
    if used == 0 and reading.processes:
        return f"in use by {_programs(reading)}, without a lease"
    return ""


def part_share(part: MigPart) -> int:
    """Milli-GPU for which a part is given out: its slices of memory; 0 where it is not given out at all."""
    if part.size is None or not 0 < part.size <= _MEMORY or not part.mig_uuid or "c." in part.profile:
        return 0
    return part.size * 1000 // _MEMORY


def part_remark(part: MigPart) -> str:
    """What a part made by MIG is, and why it is not given out where it is not."""
    if "c." in part.profile:
        return "a compute slice inside a part made by MIG: it shares its memory with others, so it is not given out"
    if not part.mig_uuid:
        return "a part made by MIG that does not tell its UUID: it is not given out"
    if not part_share(part):
        return "a part made by MIG whose size only the superuser may read: it is not given out; run the agent as root"
    return (
        f"made by MIG: {part.size}/{_MEMORY} of the memory, {part.profile.partition('g')[0]}/{_COMPUTE} of the compute"
    )


def _errors(number: int) -> str:
    return "1 error" if number == 1 else f"{number} errors"


def _programs(reading: GpuReading) -> str:
    pids = sorted({process.pid for process in reading.processes or ()})
    shown = ", ".join(str(pid) for pid in pids[:3]) + (", …" if len(pids) > 3 else "")
    return f"{'1 program' if len(pids) == 1 else f'{len(pids)} programs'} (pid {shown})"
