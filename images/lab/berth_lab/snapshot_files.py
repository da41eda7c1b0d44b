"""The files of a snapshot: `variables-ID.pickle` (the stream), `variables-ID.buffers` (large memory, raw) and
`variables.json`, the index, which names the two and is put in its place last. A saving that is cut off leaves the
snapshot that was there before, whole. All of it is its owner's alone.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import secrets
import stat
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from berth_lab.restore import Damaged
from berth_lab.serialize_refusals import Refused, full_disk

INDEX = "variables.json"
BLOCK = 8 * 1024 * 1024
#: Small writes are gathered up to this.
GATHER = 1024 * 1024
#: Read back into mapped memory of its own from this size on: no page is touched twice.
MAPPED = 1024 * 1024
MOST_INDEX_BYTES = 64 * 1024 * 1024

_NEW = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(slots=True)
class Extent:
    """Bytes of a file and their check sum."""

    at: int
    size: int = 0
    crc: int = 0

    def value(self) -> list[int]:
        return [self.at, self.size, self.crc]


@dataclass(slots=True)
class Stream:
    """A file that is written at its end, and cut back."""

    path: Path
    fd: int = field(init=False)
    at: int = 0
    _pending: bytearray = field(default_factory=bytearray)

    def __post_init__(self) -> None:
        self.fd = os.open(self.path, _NEW, 0o600)

    def write(self, data: Any, check: Callable[[], None]) -> None:
        """Raises `OSError`, and what `check` raises, which is called before every block."""
        if len(data) < GATHER:
            self._pending += data
            if len(self._pending) >= GATHER:
                self.flush()
            return
        self.flush()
        view = memoryview(data).cast("B")
        for begin in range(0, view.nbytes, BLOCK):
            check()
            self._all(view[begin : begin + BLOCK])

    def flush(self) -> None:
        pending, self._pending = self._pending, bytearray()
        self._all(memoryview(pending))

    def _all(self, view: memoryview) -> None:
        while view:
            done = os.pwrite(self.fd, view, self.at)
            self.at += done
            view = view[done:]

    def end(self) -> int:
        return self.at + len(self._pending)

    def cut(self, at: int) -> None:
        """Forget what was written after this place."""
        if at >= self.at:
            del self._pending[at - self.at :]
            return
        self._pending.clear()
        self.at = at
        os.ftruncate(self.fd, at)

    def finish(self) -> None:
        self.flush()
        os.fsync(self.fd)
        os.close(self.fd)


class Writer:
    """`serialize.Sink` of one snapshot, which knows its limits. `check` raises when the time is up."""

    def __init__(self, folder: Path, each: int, most: int, check: Callable[[], None]) -> None:
        """`each`, `most`: bytes of one variable and of all. Raises `OSError`."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        self.folder, self.name = folder, f"variables-{secrets.token_hex(8)}"
        self._each, self._most, self._check = each, most, check
        self._pickle = Stream(folder / f"{self.name}.pickle")
        try:
            self._buffers = Stream(folder / f"{self.name}.buffers")
        except OSError:
            self.abandon()
            raise
        self.begin()

    def begin(self) -> None:
        """A piece begins."""
        self._piece, self._out_of_band = Extent(self._pickle.end()), [Extent(self._buffers.end())][:0]
        self._buffers_at = self._buffers.end()

    def piece(self) -> dict[str, Any]:
        """The piece that was written: where it is."""
        return {"pickle": self._piece.value(), "buffers": [extent.value() for extent in self._out_of_band]}

    def piece_bytes(self) -> int:
        return self._piece.size + self._buffers.end() - self._buffers_at

    def total(self) -> int:
        return self._pickle.end() + self._buffers.end()

    def take_out(self) -> None:
        """The piece is not to be."""
        self._pickle.cut(self._piece.at)
        self._buffers.cut(self._buffers_at)

    def write(self, data: Any, /) -> int:
        """Of the pickler. Raises `Refused`, what `check` raises, `OSError`."""
        size = memoryview(data).nbytes
        self._room_for(size)
        self._put(self._pickle, data)
        self._piece.crc = zlib.crc32(data, self._piece.crc)
        self._piece.size += size
        return size

    def buffer(self, data: memoryview) -> None:
        """As `write`, for memory out of band."""
        self._room_for(data.nbytes)
        extent = Extent(self._buffers.end(), data.nbytes)
        self._out_of_band.append(extent)
        for begin in range(0, data.nbytes, BLOCK):
            block = data[begin : begin + BLOCK]
            self._put(self._buffers, block)
            extent.crc = zlib.crc32(block, extent.crc)

    def _room_for(self, size: int) -> None:
        self._check()
        if self.piece_bytes() + size > self._each:
            raise Refused("too-large", f"more than {self._each} bytes")
        if self.total() + size > self._most:
            raise Refused("too-large", f"more than {self._most} bytes with the other variables")

    def _put(self, stream: Stream, data: Any) -> None:
        try:
            stream.write(data, self._check)
        except OSError as error:
            raise Refused("disk", str(error)) if full_disk(error) else error from None

    def finish(self, index: dict[str, Any]) -> None:
        """Put the snapshot in its place, whole, and remove the one that was there before. Raises `OSError`."""
        self._pickle.finish()
        self._buffers.finish()
        write_whole(self.folder / INDEX, _sealed(index | {"data": self.name}))
        for path in self.folder.glob("variables-*"):
            if path.stem != self.name:
                path.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Leave nothing behind. Never raises."""
        for stream in (self._pickle, getattr(self, "_buffers", None)):
            try:
                if stream is not None:
                    stream.path.unlink(missing_ok=True)
                    os.close(stream.fd)
            except OSError:
                continue


def write_whole(path: Path, text: bytes) -> None:
    """All of it on the disk, or nothing. Raises `OSError`."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(fresh, _NEW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    above = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(above)
    finally:
        os.close(above)


def _sealed(index: dict[str, Any]) -> bytes:
    text = json.dumps(index).encode()
    return text + b"\n%08x\n" % zlib.crc32(text)


def _own(path: Path) -> int:
    """A descriptor for reading what the user alone can have written. Raises `Refused`, `OSError`."""
    try:
        descriptor = os.open(path, _OLD)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Refused("foreign", f"{path.name} is a link") from None
        raise
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
        os.close(descriptor)
        raise Refused("foreign", f"{path.name} is not a file of yours, or others may write to it")
    return descriptor


def read_index(folder: Path) -> dict[str, Any]:
    """Raises `Refused`, `Damaged`, `OSError`."""
    try:
        descriptor = _own(folder / INDEX)
    except FileNotFoundError:
        raise Refused("no-snapshot") from None
    with os.fdopen(descriptor, "rb") as file:
        text, _, seal = file.read(MOST_INDEX_BYTES).rstrip(b"\n").rpartition(b"\n")
    if seal != b"%08x" % zlib.crc32(text):
        raise Damaged("The index has another check sum.")
    index: dict[str, Any] = json.loads(text)
    return index


class Reader:
    """`restore`'s source: the pieces of a snapshot. Every byte is checked before it is used."""

    def __init__(self, folder: Path, name: str, pieces: list[dict[str, Any]]) -> None:
        """Raises `Refused`, and `OSError` where a file is missing."""
        self._pieces = pieces
        self._pickle = _own(folder / f"{name}.pickle")
        try:
            self._buffers = _own(folder / f"{name}.buffers")
        except BaseException:
            os.close(self._pickle)
            raise
        self._at = self._end = 0
        self._waiting: list[list[int]] = []

    def open(self, number: int) -> None:
        """Read this piece from now on. Raises `Damaged`."""
        at, size, crc = self._pieces[number]["pickle"]
        found = 0
        for begin in range(at, at + size, BLOCK):
            found = zlib.crc32(os.pread(self._pickle, min(BLOCK, at + size - begin), begin), found)
        if found != crc:
            raise Damaged("It has another check sum.")
        self._at, self._end = at, at + size
        self._waiting = list(self._pieces[number]["buffers"])

    def read(self, size: int = -1, /) -> bytes:
        data = os.pread(self._pickle, self._end - self._at if size < 0 else min(size, self._end - self._at), self._at)
        self._at += len(data)
        return data

    def readinto(self, room: Any, /) -> int:
        view = memoryview(room).cast("B")[: self._end - self._at]
        done = os.preadv(self._pickle, [view], self._at) if view else 0
        self._at += done
        return done

    def readline(self) -> bytes:
        line = bytearray()
        while (character := self.read(1)) and not line.endswith(b"\n"):
            line += character
        self._at -= len(character) if line.endswith(b"\n") else 0
        return bytes(line)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """The next buffer of this piece, in memory that may be written. Raises `Damaged`."""
        if not self._waiting:
            raise StopIteration
        at, size, crc = self._waiting.pop(0)
        memory: Any = mmap.mmap(-1, size) if size >= MAPPED else bytearray(size)
        found = 0
        with memoryview(memory) as view:
            for begin in range(0, size, BLOCK):
                with view[begin : begin + BLOCK] as block:
                    self._fill(block, at + begin)
                    found = zlib.crc32(block, found)
        if found != crc:
            raise Damaged("It has another check sum.")
        return memory

    def _fill(self, block: memoryview, at: int) -> None:
        while block:
            done = os.preadv(self._buffers, [block], at)
            if not done:
                raise Damaged("The file is cut off.")
            block, at = block[done:], at + done

    def close(self) -> None:
        os.close(self._pickle)
        os.close(self._buffers)
