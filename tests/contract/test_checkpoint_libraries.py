"""The callbacks in real trainings of their libraries: asked, they write the library's own checkpoint and end; the next
run goes on where it was. What is not installed is skipped; the test packages bring none of them."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest

from berth_lab import checkpoint_files as files
from tests.contract.trainer_programs import done
from tests.harness.waiting import until

#: Every program notes each optimizer step in `done`, and prints where it begins and where it ends.
COMMON = """
import json, os, sys, time, warnings
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(1)
from berth_lab import checkpoint
steps, resumed, pause = int(sys.argv[1]), sys.argv[2] == "resume", float(sys.argv[3])
def note(step):
    with open("done", "a") as file: file.write(f"{step}\\n")
    time.sleep(pause)
def say(word, step, weights, moments):
    with open(word, "w") as file: json.dump({"step": int(step), "weights": weights, "moments": moments}, file)
"""

LIGHTNING = (
    COMMON
    + """
import lightning.pytorch as pl
class Model(pl.LightningModule):
    def __init__(self):
        super().__init__(); self.layer = torch.nn.Linear(4, 1)
    def configure_optimizers(self): return torch.optim.Adam(self.parameters(), lr=0.01)
    def training_step(self, batch, index): return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
    def state(self):
        adam = self.trainer.optimizers[0].state_dict()["state"]
        return self.trainer.global_step, self.layer.weight[0].tolist(), adam[0]["exp_avg"].tolist() if adam else []
    def on_train_start(self): say("begin", *self.state())
    def on_train_batch_end(self, *a): note(self.trainer.global_step - 1)
    def on_train_end(self): say("end", *self.state())
data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
trainer = pl.Trainer(max_steps=steps, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, callbacks=[checkpoint.LightningCallback("berth.ckpt")])
model = Model()
trainer.fit(model, torch.utils.data.DataLoader(data, 8), ckpt_path="berth.ckpt" if resumed else None)
"""
)

TRANSFORMERS = (
    COMMON
    + """
import transformers
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.layer = torch.nn.Linear(4, 1)
    def forward(self, x, labels): return {"loss": torch.nn.functional.mse_loss(self.layer(x)[:, 0], labels)}
class Notes(transformers.TrainerCallback):
    def state(self, state, model, optimizer):
        adam = optimizer.state_dict()["state"]
        moments = adam[0]["exp_avg"].tolist() if adam else []
        return state.global_step, model.layer.weight[0].tolist(), moments
    def on_train_begin(self, args, state, control, model, optimizer, **more):
        say("begin", *self.state(state, model, optimizer))
    def on_step_end(self, args, state, control, **more): note(state.global_step - 1)
    def on_train_end(self, args, state, control, model, optimizer, **more):
        say("end", *self.state(state, model, optimizer))
data = [{"x": torch.randn(4), "labels": torch.randn(())} for _ in range(64)]
arguments = transformers.TrainingArguments("out", max_steps=steps, per_device_train_batch_size=8, report_to=[],
    use_cpu=True, save_strategy="no", logging_strategy="no", disable_tqdm=True, dataloader_pin_memory=False)
trainer = transformers.Trainer(Model(), arguments, train_dataset=data,
    callbacks=[Notes(), checkpoint.TrainerCallback()])
trainer.train(resume_from_checkpoint=True if resumed else None)
"""
)

KERAS = (
    COMMON
    + """
os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np
class Notes(keras.callbacks.Callback):
    def state(self):
        optimizer = self.model.optimizer
        named = {v.path.rpartition("/")[2]: keras.ops.convert_to_numpy(v).tolist() for v in optimizer.variables}
        moments = next((v for k, v in named.items() if "kernel_momentum" in k), [])
        return int(optimizer.iterations), self.model.layers[-1].get_weights()[0][:, 0].tolist(), moments
    def on_train_begin(self, logs=None): say("begin", *self.state())
    def on_train_batch_end(self, batch, logs=None):
        note(int(self.model.optimizer.iterations) - 1)
        self.model.stop_training = int(self.model.optimizer.iterations) >= steps
    def on_train_end(self, logs=None): say("end", *self.state())
if resumed:
    model = keras.models.load_model("berth.keras")
else:
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="mse")
random = np.random.default_rng(0)
rows, right = random.normal(size=(64, 4)), random.normal(size=64)
model.fit(rows, right, batch_size=8, epochs=steps, verbose=0,
    callbacks=[Notes(), checkpoint.KerasCallback("berth.keras")])
"""
)

PROGRAMS = {
    "lightning": (LIGHTNING, "berth.ckpt"),
    "transformers": (TRANSFORMERS, "out/checkpoint-{steps}"),
    "keras": (KERAS, "berth.keras"),
}


def missing(library: str) -> str:
    found = [name for name in (library, "torch") if find_spec(name) is None]
    return f"{' and '.join(found)} not installed" if found else ""


def started(folder: Path, code: str, *words: str) -> subprocess.Popen[str]:
    (folder / "train.py").write_text(code)
    line = [sys.executable, "train.py", *words]
    return subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen[str]) -> None:
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said[-2000:]


def state(folder: Path, word: str) -> dict[str, object]:
    return dict(json.loads((folder / word).read_text()))


@pytest.mark.timeout(900)  # these libraries need a minute to be imported on a busy machine
@pytest.mark.parametrize("library", PROGRAMS)
def test_asked_it_writes_its_checkpoint_ends_and_goes_on_without_a_step_lost(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing(library):
        pytest.skip(missing(library))
    monkeypatch.setenv("BERTH_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("BERTH_LEASE", "l1")
    folder = tmp_path / "work"
    folder.mkdir()
    code, where = PROGRAMS[library]
    process = started(folder, code, "100000", "new", "0.01")
    try:
        until(lambda: len(done(folder)) >= 12 or process.poll() is not None, 200, "it trains")
        assert process.poll() is None, process.communicate()
        [trainer] = files.trainers()
        assert trainer.pid == process.pid and trainer.signal == "SIGUSR1"
        request = files.ask("idle", datetime.now(UTC) + timedelta(seconds=60))
        until(lambda: not files.waiting(request), 60, "it has answered")
        ended(process)
    finally:
        process.kill()
        process.wait()
    files.withdraw()
    steps = len(done(folder))
    assert (folder / where.format(steps=steps)).exists() and done(folder) == list(range(steps))
    left = state(folder, "end")
    assert left["step"] == steps and left["moments"]
    ended(started(folder, code, str(steps + 10), "resume", "0"))
    assert state(folder, "begin") == left, "the step, the weights, and the optimizer's own state"
    assert done(folder) == list(range(steps + 10)), "no step is lost, none is done twice"
