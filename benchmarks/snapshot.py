"""A notebook's variables saved and taken back: ours, beside dill and plain pickle, in one run.

`python -m benchmarks.snapshot --json [--mib 1024] [--rounds 3] [--folder …]`

Two namespaces of that size: `arrays` (one numpy array of half of it, 64 others) and `objects` (an eighth of it in
lists, dictionaries and texts, the rest in arrays). Every side saves and loads in processes of its own, in turns; all
write to a file and wait until it is on the disk (`fsync`), and what is loaded is compared with what was saved, outside
of the time. `extra_mib` is by how much memory grew at its highest over what the process had before. dill and pickle get
the values as one dictionary; ours takes them out of the namespace, looks for what cannot be kept, and checks sums
besides. `refused` is one array of the whole size with a limit one MiB below it: it must be named, and nothing of it be
left. The exit code is 1 where something differs, or where ours takes longer than `[save] variables_time` allows.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.common import arguments, machine, show

SIDES = ("ours", "pickle", "dill")
SPACES = ("arrays", "objects")
TARGET_S = 60.0

#: One saving or loading. The values are its globals, as a notebook's are.
CHILD = """
import json, os, resource, sys, time
side, action, space, mib, folder = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
import numpy as np
def values():
    plain = mib // 8 if space == "objects" else 0
    made, cells = {}, (mib - plain) * 131_072
    made["big"] = np.arange(cells // 2, dtype="f8")
    for n in range(64):
        made[f"part{n}"] = np.full(cells // 128, n, dtype="f8")
    if plain:
        rows = plain * 1024 * 1024 // 700  # bytes of a row's objects, about
        made["rows"] = [{"id": n, "name": f"row {n}", "at": n / 7, "tags": [n, str(n)]} for n in range(rows)]
    return made
def same(found):
    wanted = values()
    return found.keys() == wanted.keys() and all(
        np.array_equal(found[k], v) if isinstance(v, np.ndarray) else found[k] == v for k, v in wanted.items())
def high(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
def resident():
    with open("/proc/self/statm") as file: return int(file.read().split()[1]) * resource.getpagesize() / 2**20
path = os.path.join(folder, f"{side}.bin")
if side == "ours":
    from berth_lab import snapshot
else:
    library = __import__(side)
made = values() if action == "save" else {}
names = list(made)
globals().update(made)
before, began = resident(), time.perf_counter()
if side == "ours" and action == "save":
    del made
    snapshot.save(folder, {"most_mib": 2 * mib, "seconds": 600})
elif side == "ours":
    snapshot.load(folder)
    made = {n: globals()[n] for n in ("big", "rows", *(f"part{n}" for n in range(64))) if n in globals()}
elif action == "save":
    with open(path, "wb") as file:
        library.dump(made, file, protocol=5)
        file.flush()
        os.fsync(file.fileno())
else:
    with open(path, "rb") as file:
        made = library.load(file)
seconds = time.perf_counter() - began
found = {"seconds": seconds, "extra_mib": max(0.0, high() - before)}
if action == "load":
    found["equal"] = same(made)
else:
    report = json.load(open(os.path.join(folder, "report.json"))) if side == "ours" else {"saved": []}
    found["missing"] = sorted(set(names) - {row["name"] for row in report["saved"]}) if side == "ours" else []
    found["file_mib"] = sum(os.path.getsize(os.path.join(folder, n)) for n in os.listdir(folder)) / 2**20
print(json.dumps(found))
"""

REFUSED = """
import json, os, sys, time
import numpy as np
from berth_lab import snapshot
mib, folder = int(sys.argv[1]), sys.argv[2]
over, small = np.ones(mib * 131_072), 5
began = time.perf_counter()
snapshot.save(folder, {"most_mib": 2 * mib, "each_mib": mib - 1, "seconds": 600})
seconds = time.perf_counter() - began
report = json.load(open(os.path.join(folder, "report.json")))
left = sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder))
codes = {row["name"]: row["code"] for row in report["lost"]}
print(json.dumps({"seconds": seconds, "named": codes.get("over") == "too-large", "left_kib": left / 1024}))
"""


def child(code: str, *words: str) -> dict[str, Any]:
    """What one process measured. Raises `subprocess.CalledProcessError`."""
    ran = subprocess.run([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(ran.stdout))


def sides() -> list[str]:
    """Those that are installed."""
    return [side for side in SIDES if side == "ours" or importlib.util.find_spec(side) is not None]


def one_space(space: str, mib: int, rounds: int, folder: str | None) -> dict[str, Any]:
    """All sides on one namespace; `ratio` is ours to each other, of medians."""
    measured: dict[str, dict[str, list[dict[str, Any]]]] = {side: {"save": [], "load": []} for side in sides()}
    for _ in range(rounds):
        for side, runs in measured.items():
            with tempfile.TemporaryDirectory(prefix="berth-bench-", dir=folder) as place:
                for action in ("save", "load"):
                    runs[action].append(child(CHILD, side, action, space, str(mib), place))
    found: dict[str, Any] = {side: summed(runs) for side, runs in measured.items()}
    for side in [each for each in found if each != "ours"]:
        for action in ("save_s", "load_s"):
            found["ours"][f"{action[:-2]}_to_{side}"] = round(found["ours"][action] / found[side][action], 2)
    return found


def summed(runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Medians of one side."""
    saves, loads = runs["save"], runs["load"]
    return {
        "save_s": round(statistics.median(run["seconds"] for run in saves), 3),
        "load_s": round(statistics.median(run["seconds"] for run in loads), 3),
        "save_extra_mib": round(statistics.median(run["extra_mib"] for run in saves)),
        "load_extra_mib": round(statistics.median(run["extra_mib"] for run in loads)),
        "file_mib": round(saves[0]["file_mib"]),
        "missing": sorted({name for run in saves for name in run["missing"]}),
        "equal": all(run["equal"] for run in loads),
    }


def measure(mib: int, rounds: int, folder: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {space: one_space(space, mib, rounds, folder) for space in SPACES}
    with tempfile.TemporaryDirectory(prefix="berth-bench-", dir=folder) as place:
        refused = child(REFUSED, str(mib), place)
    return found | {"refused": {name: round(value, 3) for name, value in refused.items()}}


def kept(found: dict[str, Any]) -> bool:
    """Whether ours does what is promised."""
    ours = [found[space]["ours"] for space in SPACES]
    whole = all(each["equal"] and not each["missing"] and each["save_s"] <= TARGET_S for each in ours)
    return whole and bool(found["refused"]["named"]) and found["refused"]["left_kib"] < 1024


def main(words: list[str] | None = None) -> int:
    parser = arguments("snapshot", __doc__)
    parser.add_argument("--mib", type=int, default=1024, help="size of a namespace (1024)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each side saves and loads (3)")
    parser.add_argument("--folder", help="where the files lie (the system's temporary folder)")
    options = parser.parse_args(words)
    found = measure(options.mib, options.rounds, options.folder)
    show({"benchmark": "snapshot", "mib": options.mib, "machine": machine()} | found, options.json)
    return 0 if kept(found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
