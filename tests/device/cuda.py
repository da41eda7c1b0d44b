"""What a program in a server would see of the GPUs, through CUDA's driver library alone.

Run as a process: prints one JSON object, waits for a line on standard input, ends. With a number of MiB as argument it
allocates so much on its first device.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


def uuids(cuda: ctypes.CDLL) -> list[str]:
    """The visible devices in CUDA's order, named as NVML names them."""
    count = ctypes.c_int()
    assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
    found = []
    for ordinal in range(count.value):
        raw = (ctypes.c_ubyte * 16)()
        device = ctypes.c_int()
        assert cuda.cuDeviceGet(ctypes.byref(device), ordinal) == 0
        assert cuda.cuDeviceGetUuid(ctypes.byref(raw), device) == 0
        text = bytes(raw).hex()
        found.append("GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:])))
    return found


def allocate(cuda: ctypes.CDLL, mib: int) -> int:
    """CUDA's result of taking so much memory; the context stays until the process ends."""
    device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    return int(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(mib << 20)))


def main() -> None:
    cuda = ctypes.CDLL("libcuda.so.1")
    result = cuda.cuInit(0)
    seen = {"pid": os.getpid(), "init": result, "uuids": uuids(cuda) if result == 0 else []}
    if len(sys.argv) > 1 and result == 0:
        seen["allocated"] = allocate(cuda, int(sys.argv[1]))
    print(json.dumps(seen), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
