"""Training programs as people write them: the loops are those of `docs/how-to/checkpoints.md`, word by word; what is
around them is a small regression whose result tells whether a step was done twice, or left out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/checkpoints.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
#: `save()` and `point(step)`; a program that writes on its own.
OWN_LOOP, BY_ITSELF = (
    next(block for block in BLOCKS if word in block) for word in ("def save", "checkpoint.requested")
)

#: Where no torch is: momentum and weights with numpy. `train` notes each step that is done in a file.
NUMPY = """
import os, pickle, sys, time, types
import numpy as np
class Holds:
    def __init__(self): self.values = np.zeros(4)
    def state_dict(self): return self.values
    def load_state_dict(self, values): self.values = values
model, optimizer = Holds(), Holds()
torch = types.SimpleNamespace(
    save=lambda value, path: open(path, "wb").write(pickle.dumps(value)),
    load=lambda path: pickle.load(open(path, "rb")),
)
def learn(step):
    x = np.random.default_rng(step).normal(size=(8, 4))
    gradient = x.T @ (x @ (model.values - [1, 2, 3, 4])) / 8
    optimizer.values = 0.9 * optimizer.values - 0.01 * gradient
    model.values = model.values + optimizer.values
def shown(): return model.values.tolist()
"""

#: The same with torch's own.
TORCH = """
import os, sys, time
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1, dtype=torch.float64)
torch.nn.init.zeros_(model.weight); torch.nn.init.zeros_(model.bias)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
def learn(step):
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x)[:, 0], x @ torch.tensor([1., 2., 3., 4.], dtype=torch.float64)).backward()
    optimizer.step()
def shown(): return [*model.weight[0].tolist(), model.bias.item()]
"""

BEGIN = """
first, steps, pause = 0, int(sys.argv[1]), float(sys.argv[2])
if os.path.exists("last.pt"):
    found = torch.load("last.pt")
    model.load_state_dict(found["model"]); optimizer.load_state_dict(found["optimizer"]); first = found["step"] + 1
def train(step):
    learn(step)
    with open("done", "a") as file: file.write(f"{step}\\n")
    time.sleep(pause)
def write(path):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "new.pt")
    os.replace("new.pt", path)
"""
END = """
print(step, shown())
"""


def program(parts: str, loop: str) -> str:
    return parts + BEGIN + loop + END


def started(folder: Path, code: str, steps: int, pause: float = 0.005) -> subprocess.Popen[str]:
    """The program, at work in its folder."""
    (folder / "train.py").write_text(code)
    words = [sys.executable, "train.py", str(steps), str(pause)]
    return subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str], seconds: float = 60) -> str:
    """What it printed. Raises `AssertionError` unless it ended well."""
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, err
    return out.strip()


def done(folder: Path) -> list[int]:
    """The steps that were done, in their order, over all runs."""
    path = folder / "done"
    return [int(line) for line in path.read_text().split()] if path.exists() else []
