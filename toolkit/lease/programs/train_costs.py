"""What the calls of a training's step cost on this device by this driver or engine, each kind of call by itself.

Each figure is the time of some calls and of the synchronisation that waits for them, so that it holds whatever is not
waited for at the call itself. Kernels are launched on one number: what they compute takes no time. The kinds take
turns, so that a busy machine disturbs all of them.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

from toolkit.lease.programs.train_gpu import Gpu, Pinned
from toolkit.lease.programs.train_net import FLOAT, Net

ROUNDS, LEAST_ROUNDS = 31, 7  # the first one is left out
PAUSE_S = 0.002  # before each: as in a step that computes, nobody is awake and nothing is in a cache when it comes
LIMIT_S = 3.0  # after the least number of rounds; on a slow link a large batch takes tenths of a second


def costs(gpu: Gpu, net: Net, launches: int) -> dict[str, Any]:
    """Seconds, a list of each: `synchronisation` alone; `launches` empty launches, `to_device` and `from_device` of the
    bytes of a step, each with the synchronisation behind it. CudaError where a call fails.
    """
    scratch, one, answer = gpu.alloc(2 * FLOAT), ctypes.c_uint(1), Pinned(gpu.cuda, FLOAT)
    gpu.cuda.cuCtxSynchronize()  # memory is zero before its stream, which waits for no other, goes on
    launch = gpu.launcher("add", (1, 1), (1, 1), scratch, scratch, one)
    images, labels = net.rows * net.shape.inputs * FLOAT, net.rows * FLOAT

    def launched() -> None:
        for _ in range(launches):
            launch()

    def to_device() -> None:
        gpu.take(net.images, net.host, images)
        gpu.take(net.labels, net.host, labels, offset=images)

    kinds: dict[str, Callable[[], None]] = {
        "synchronisation": lambda: None,
        "launches": launched,
        "to_device": to_device,
        "from_device": lambda: gpu.give(answer, net.loss, FLOAT),
    }
    gpu.use()
    found: dict[str, list[float]] = {name: [] for name in kinds}
    until = time.monotonic() + LIMIT_S
    for number in range(ROUNDS):
        if number >= LEAST_ROUNDS and time.monotonic() > until:
            break
        for name, calls in kinds.items():
            time.sleep(PAUSE_S)
            began = time.perf_counter()
            calls()
            gpu.wait()
            found[name].append(time.perf_counter() - began)
    return {"launches_each": launches, "bytes_to_device": images + labels, "bytes_from_device": FLOAT} | {
        f"{name}_s": [round(seconds, 9) for seconds in times[1:]] for name, times in found.items()
    }
