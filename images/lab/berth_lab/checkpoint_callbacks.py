"""Callbacks for Lightning, Hugging Face and Keras that write a checkpoint when the server is to end, say so, and end
the training in order. Each is made from the library that the program has imported already; none is imported here."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any


def _loaded(what: str, *names: str) -> Any:
    """The first of these modules that the program has imported. Raises `ImportError`."""
    for name in names:
        if (module := sys.modules.get(name)) is not None:
            return module
    raise ImportError(f"{what} needs {names[0]}: import it before this callback is made.")


def LightningCallback(path: str | os.PathLike[str] = "berth.ckpt") -> Any:
    """For `Trainer(callbacks=[…])` of lightning or pytorch_lightning: writes the trainer's checkpoint to `path` after
    the batch in which it is asked for. Resume with `trainer.fit(model, ckpt_path=path)`. Raises `ImportError`."""
    from berth_lab import checkpoint

    base: Any = _loaded("LightningCallback", "lightning.pytorch.callbacks", "pytorch_lightning.callbacks").Callback

    class BerthCheckpoint(base):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            if trainer.is_global_zero:
                checkpoint.install()

        def on_train_batch_end(self, trainer: Any, *batch: Any, **more: Any) -> None:
            # Every process must take part in saving, so they agree first.
            if not trainer.strategy.reduce_boolean_decision(checkpoint.requested(), all=False):
                return
            try:
                trainer.save_checkpoint(os.fspath(path))
            except Exception as error:
                checkpoint.failed(error, trainer.global_step)
                raise
            trainer.should_stop = True
            if trainer.is_global_zero:
                checkpoint.written(path, trainer.global_step)

    return BerthCheckpoint()


def TrainerCallback() -> Any:
    """For `transformers.Trainer(callbacks=[…])`: has it write its own `checkpoint-N` after the step in which it is
    asked for. Resume with `trainer.train(resume_from_checkpoint=True)`. Raises `ImportError`."""
    from berth_lab import checkpoint

    base: Any = _loaded("TrainerCallback", "transformers").TrainerCallback

    class BerthCheckpoint(base):
        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> Any:
            if state.is_world_process_zero:
                checkpoint.install()
            return control

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> Any:
            if checkpoint.requested_anywhere():
                control.should_save = True
                control.should_training_stop = True
            return control

        def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> Any:
            if state.is_world_process_zero:
                checkpoint.written(Path(args.output_dir) / f"checkpoint-{state.global_step}", state.global_step)
            return control

    return BerthCheckpoint()


def KerasCallback(path: str | os.PathLike[str] = "berth.keras") -> Any:
    """For `model.fit(callbacks=[…])` of Keras 3 or tf.keras: saves the model, with its optimizer's state, to `path`
    after the batch in which it is asked for. Resume with `keras.models.load_model(path)`. Raises `ImportError`."""
    from berth_lab import checkpoint

    library = _loaded("KerasCallback", "keras.callbacks", "tensorflow.keras.callbacks", "keras")
    base: Any = getattr(library, "callbacks", library).Callback

    class BerthCheckpoint(base):
        def __init__(self) -> None:
            super().__init__()
            self.steps = 0

        def on_train_begin(self, logs: Any = None) -> None:
            checkpoint.install()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.steps += 1
            if not checkpoint.requested():
                return
            try:
                _replaced(self.model, Path(path))
            except Exception as error:
                checkpoint.failed(error, self.steps)
                raise
            self.model.stop_training = True
            checkpoint.written(path, self.steps)

    return BerthCheckpoint()


def _replaced(model: Any, path: Path) -> None:
    """Save beside it, then put it in its place: a save that is cut off leaves the last one whole."""
    fresh = path.with_name(f".new-{path.name}")
    model.save(os.fspath(fresh))
    fresh.replace(path)
