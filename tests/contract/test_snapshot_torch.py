"""Models, optimizers and tensors over the end of a real kernel. All of it needs torch, which the test packages do not
bring: from the package index it comes with gigabytes of libraries for GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from berth_lab.serialize_refusals import WHY
from tests.contract.snapshot_cases import Case
from tests.contract.snapshot_torch_cases import TORCH
from tests.harness.own_kernel import OwnKernel, own_kernel

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed (pip install torch)")

#: Sums come out to the last bit where they are made in the same order.
ALONE = "import torch; torch.set_num_threads(1)"
#: Says of the storages of `gpu`'s tensors that they are on a GPU, and counts what is fetched from there.
STAND_IN = """
import torch
_device, _cpu, there, fetched = torch.UntypedStorage.device, torch.UntypedStorage.cpu, set(), []
def _where(self): return torch.device('cuda:0') if self.data_ptr() in there else _device.__get__(self)
def _fetch(self): fetched.append(self.nbytes()); return torch.UntypedStorage(self.nbytes()).copy_(self)
torch.UntypedStorage.device, torch.UntypedStorage.cpu = property(_where), _fetch
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def crossing(home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """By case: "True", "False" or what was raised, of what comes back; the code of what is refused."""
    folder = tmp_path_factory.mktemp("crossing")
    with own_kernel(home) as kernel:
        kernel.run(ALONE)
        for case in TORCH:
            kernel.run(case.cell)
        report = kernel.save(folder)
    assert all(row["why"] == WHY[row["code"]] for row in report["lost"])
    with own_kernel(home) as kernel:
        kernel.run(ALONE)
        restored = kernel.load(folder)
        held = kernel.values({case.name: f"bool({case.holds})" for case in TORCH if case.holds})
    found = held | {row["name"]: row["code"] for row in report["lost"]}
    return found | {row["name"]: f"{row['code']}: {row['detail']}" for row in restored["lost"]}


@pytest.mark.parametrize("case", TORCH, ids=lambda case: case.name)
def test_what_comes_back_is_equal_and_what_cannot_is_refused_by_name(crossing: dict[str, str], case: Case) -> None:
    assert crossing[case.name] == (case.code or "True")


@pytest.fixture
def kernel(home: Path) -> Iterator[OwnKernel]:
    with own_kernel(home) as kernel:
        kernel.run("import torch")
        yield kernel


def test_random_numbers_go_on(kernel: OwnKernel, tmp_path: Path) -> None:
    kernel.run("torch.manual_seed(5); before = torch.rand(3)")
    kernel.save(tmp_path)
    kernel.run("after = torch.rand(3).tolist()")
    expected = kernel.value("after")
    kernel.run("get_ipython().run_line_magic('reset', '-f')")
    kernel.load(tmp_path)
    assert kernel.value("torch.rand(3).tolist()") == expected


def test_what_is_on_a_gpu_comes_by_way_of_memory_and_is_told_where_no_gpu_is(kernel: OwnKernel, tmp_path: Path) -> None:
    """A stand-in: the storage says that it is on a GPU. What a real one does is `tests/device`'s affair."""
    kernel.run(STAND_IN)
    kernel.run(
        "gpu = torch.arange(50_000.); window = gpu[10:]; other = torch.ones(3); "
        "there.add(gpu.untyped_storage().data_ptr())"
    )
    report = kernel.save(tmp_path)
    assert report["lost"] == [] and kernel.value("fetched") == "[200000]", "fetched once, however many share it"
    kernel.run("torch.UntypedStorage.device, torch.UntypedStorage.cpu = _device, _cpu")
    kernel.run("get_ipython().run_line_magic('reset', '-f')")
    restored = kernel.load(tmp_path)
    assert restored["lost"] == []
    assert restored["notes"] == ["Tensors of cuda:0 are in the machine's memory now: that device is not there."]
    assert (
        kernel.value("torch.equal(gpu, torch.arange(50_000.)) and (window[0].item(), other.sum().item())")
        == "(10.0, 3.0)"
    )


def test_what_was_on_a_gpu_goes_back_to_it_where_there_is_one(kernel: OwnKernel, tmp_path: Path) -> None:
    kernel.run(STAND_IN)
    kernel.run("gpu = torch.arange(50_000.); there.add(gpu.untyped_storage().data_ptr())")
    kernel.save(tmp_path)
    kernel.run("torch.UntypedStorage.device, torch.UntypedStorage.cpu = _device, _cpu")
    kernel.run("get_ipython().run_line_magic('reset', '-f')")
    kernel.run(
        "import torch\nwent = []\ndef to(self, *, device): went.append((str(device), self.nbytes())); return self\n"
        "torch.UntypedStorage.to = to"
    )
    restored = kernel.load(tmp_path)
    assert (restored["lost"], restored["notes"]) == ([], [])
    assert kernel.value("(went, gpu[-1].item())") == "([('cuda:0', 200000)], 49999.0)"
