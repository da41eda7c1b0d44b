"""Why variables are not saved with dill: what it makes again of things that are bound to a process."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dill
import pytest

from berth_lab.serialize import Serializer
from berth_lab.serialize_refusals import Refused


class Nowhere:
    """A `serialize.Sink`."""

    def write(self, data: Any, /) -> int:
        return len(data)

    def buffer(self, data: memoryview) -> None: ...


def locked(_: Path) -> Any:
    lock = threading.Lock()
    lock.acquire()
    return lock


BOUND: dict[str, tuple[Callable[[Path], Any], str]] = {
    "lock": (locked, "lock"),
    "file": (lambda folder: (folder / "data").open("w+"), "file"),
}


@pytest.mark.parametrize("make,code", BOUND.values(), ids=BOUND)
def test_dill_makes_one_that_looks_alike_where_ours_refuses(
    tmp_path: Path, make: Callable[[Path], Any], code: str
) -> None:
    value = make(tmp_path)
    try:
        again = dill.loads(dill.dumps(value))
        assert type(again) is type(value) and again is not value
        if code == "lock":
            assert again.locked(), "and nobody is there who would release it"
        if code == "file":
            again.close()
        with pytest.raises(Refused) as refused:
            Serializer(Nowhere(), {}).add(value)
        assert refused.value.code == code
    finally:
        if code == "file":
            value.close()


def test_dills_pickler_is_the_one_in_python_and_ours_the_one_in_c() -> None:
    assert pickle._Pickler in dill.Pickler.__mro__  # type: ignore[attr-defined]
    assert pickle.Pickler in Serializer.__mro__ and pickle._Pickler not in Serializer.__mro__  # type: ignore[attr-defined]
