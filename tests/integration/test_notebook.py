"""The shipped notebook runs from top to bottom in a real kernel."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parents[2] / "images" / "notebooks" / "digits.ipynb"


def read() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def words(notebook: nbformat.NotebookNode) -> str:
    """All that the code cells printed."""
    outputs = [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]
    return "".join(out.text for out in outputs if out.output_type == "stream" and out.name == "stdout")


async def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **env: str) -> str:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    notebook = read()
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    await client.async_execute()
    complaints = [
        output for cell in notebook.cells for output in cell.get("outputs", []) if output.get("name") == "stderr"
    ]
    assert not complaints, complaints  # a warning in red is no welcome
    return words(notebook)


def test_it_is_valid_and_carries_no_outputs() -> None:
    notebook = read()
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(not cell.outputs and cell.execution_count is None for cell in code)


async def test_it_trains_and_says_that_the_gpu_is_simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = await run(tmp_path, monkeypatch, BERTH_SIMULATED="1", CUDA_VISIBLE_DEVICES="SIM-0001")
    assert "simulated GPU (SIM-0001)" in printed
    assert "Training on: CPU (the GPU of this server is simulated)" in printed
    accuracy = float(printed.rpartition("Accuracy: ")[2].strip().rstrip("%"))
    assert accuracy > 90


async def test_it_trains_without_any_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed = await run(tmp_path, monkeypatch, CUDA_VISIBLE_DEVICES="")
    assert "This server has no GPU" in printed
    assert "simulated" not in printed
    assert "Accuracy: " in printed
