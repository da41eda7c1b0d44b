"""Builds the NVML shim with the machine's C compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml_shim.c")
SONAME = "libnvidia-ml.so.1"


def compiler() -> str | None:
    """The C compiler of this machine, if there is one."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(folder: Path, *, without: tuple[str, ...] = ()) -> Path:
    """Compile the shim into a folder for LD_LIBRARY_PATH, without the functions of these names, as an old driver's
    library does not have them; the folder."""
    command = [compiler() or "cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    if without:
        exports = folder / "exports"
        exports.write_text(f"{{ global: *; local: {' '.join(f'{name};' for name in without)} }};\n", encoding="ascii")
        command.append(f"-Wl,--version-script={exports}")
    command += [f"-Wl,-soname,{SONAME}", "-o", str(folder / SONAME), str(SOURCE)]
    subprocess.run(command, check=True, timeout=120)
    return folder
