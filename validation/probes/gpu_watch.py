"""What GPUs were doing while something was measured on them, by NVML: clocks, the reasons for them, power, heat, use.

A thread of the probe looks at them from beside, a few times in a second. It takes no more than SHARE of a processor's
time: where NVML answers slowly it looks less often. However long it looks, it holds the same memory: how often each
value was seen, and a course of at most POINTS points. What a GPU does not say is left out, never 0.

    with Sampler() as sampler:
        ...
    sampler.document()
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import Counter
from collections.abc import Collection
from typing import Any

from validation.nvml import Gpu, Nvml, NvmlError, State, reason_names

SAMPLE_S = 0.2  # between two looks
SHARE = 0.02  # of the time, at most, goes by in looking
POINTS = 240  # of a course; when there are more, every second one goes and the next ones are twice as far apart
#: What is kept of each look: its least, middle and most.
QUANTITIES = ("sm_mhz", "memory_mhz", "power_w", "temperature_c", "utilisation_percent")
COURSE = ("utilisation_percent", "temperature_c", "power_w", "sm_mhz")
LIMITS = ("sm_max_mhz", "memory_max_mhz", "power_limit_w")


class Seen:
    """What was seen of one GPU."""

    def __init__(self, gpu: Gpu) -> None:
        """Nothing yet."""
        self.gpu, self.said = gpu, ""
        self.uuid, self.address = gpu.uuid, gpu.address
        self.samples = self.looks = 0
        self.seconds = 0.0
        self.values: dict[str, Counter[float]] = {key: Counter() for key in QUANTITIES}
        self.limits: dict[str, float | None] = dict.fromkeys(LIMITS)
        self.reasons: Counter[str] = Counter()
        self.reason_s: Counter[str] = Counter()
        self.course: list[list[float | None]] = []
        self.step = 1

    def take(self, state: State, at_s: float, since_s: float, counts: bool) -> None:
        """One look, `since_s` after the last; `counts`: the GPU is the one that is measured."""
        document = state.document()
        self.looks += 1
        self.seconds += since_s
        for name in document["throttle_reasons"] or ():
            self.reason_s[name] += since_s  # type: ignore[assignment]
        if (self.looks - 1) % self.step == 0:
            self.course.append([round(at_s, 2), *(document[key] for key in COURSE)])
            if len(self.course) > POINTS:
                self.course, self.step = self.course[::2], 2 * self.step
        if not counts:
            return
        self.samples += 1
        for key in QUANTITIES:
            if document[key] is not None:
                self.values[key][round(document[key])] += 1
        for key in LIMITS:
            if document[key] is not None:
                self.limits[key] = document[key]
        for name in document["throttle_reasons"] or ():
            self.reasons[name] += 1

    def document(self) -> dict[str, Any]:
        """As JSON has it: GpuWatch, `reasons` as the share of the looks and `reason_s` in seconds."""
        found: dict[str, Any] = {
            "address": self.address, "uuid": self.uuid, "samples": self.samples, "seconds": round(self.seconds, 2),
            "said": self.said, **self.limits,
            "reasons": {name: self.reasons[name] / self.samples for name in sorted(self.reasons)},
            "reason_s": {name: round(self.reason_s[name], 2) for name in sorted(self.reason_s)},
        }  # fmt: skip
        for key, counted in self.values.items():
            if counted:
                found[key] = {"least": min(counted), "median": middle(counted), "most": max(counted)}
        return found


def middle(counted: Counter[float]) -> float:
    """The median of values of which each was seen so many times: the lower of two middle ones."""
    before, half = 0, (sum(counted.values()) + 1) // 2
    for value in sorted(counted):
        before += counted[value]
        if before >= half:
            return value
    raise ValueError("nothing was counted")


class Sampler:
    """Looks at GPUs from beside, from `with` to its end."""

    def __init__(self, addresses: Collection[str] | None = None, every_s: float = SAMPLE_S) -> None:
        """`addresses`: on the PCI bus, of the GPUs to look at; None: all that NVML has."""
        self.addresses, self.every_s = addresses, every_s
        self.said = ""  # why nothing is known
        self.seen: list[Seen] = []
        self.cost_s = 0.0
        self.busy: frozenset[str] | None = None  # addresses of those that are measured now; None: all
        self.over, self.wake = threading.Event(), threading.Event()
        self.began = time.monotonic()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            with Nvml() as nvml:
                answering, silent = nvml.answering()
                gpus = [gpu for gpu in answering if self.addresses is None or gpu.address in self.addresses]
                missing = sorted(set(self.addresses or ()) - {gpu.address for gpu in gpus})
                if missing:
                    self.said = f"NVML has no GPU at {', '.join(one or 'an unknown address' for one in missing)}"
                self.said = "; ".join(filter(None, (self.said, *silent)))
                self.seen = [Seen(gpu) for gpu in gpus]
                self._look_on()
        except (NvmlError, AttributeError, OSError) as fault:
            self.said = str(fault)

    def _look_on(self) -> None:
        last = time.monotonic()
        while self.seen:
            begin, busy = time.monotonic(), self.busy
            for one in self.seen:
                if not one.said:
                    try:
                        counts = busy is None or one.address in busy
                        one.take(one.gpu.state(), begin - self.began, begin - last, counts)
                    except NvmlError as fault:  # lost meanwhile; the others are still there
                        one.said = str(fault)
            last, took = begin, time.monotonic() - begin
            self.cost_s += took
            self.wake.wait(max(self.every_s, took / SHARE))
            self.wake.clear()
            if self.over.is_set():
                return

    def now(self, *addresses: str) -> None:
        """From now on these are measured, and one look is taken at once; without any, none is."""
        self.busy = frozenset(addresses)
        self.wake.set()

    def __enter__(self) -> Sampler:
        """Begin to look."""
        self.began = time.monotonic()
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Look no more."""
        self.over.set()
        self.wake.set()
        self.thread.join(5)

    def document(self) -> dict[str, Any]:
        """Each GPU, `said` why others are not there, `cost_s` seconds that the looks took."""
        return {"said": self.said, "cost_s": round(self.cost_s, 4), "gpus": [one.document() for one in self.seen]}


class Watch:
    """Looks at one GPU from beside, from `with` to its end."""

    def __init__(self, address: str) -> None:
        """`address`: on the PCI bus, as CUDA tells it. Who works there now is somebody else."""
        self.address, self.said = address, ""
        self.who: dict[str, Any] = {"others": {}}
        self.sampler = Sampler({address})
        try:
            with Nvml() as nvml:
                gpu = next((one for one in nvml.answering()[0] if address and one.address == address), None)
                if gpu is None:
                    raise NvmlError(f"NVML has no GPU at {address or 'an unknown address'}")
                self.who.update(uuid=gpu.uuid, serial=gpu.said("Serial") or "", others=gpu.processes() or {})
        except (NvmlError, AttributeError, OSError) as fault:
            self.said = str(fault)

    def __enter__(self) -> Watch:
        """Begin to look."""
        self.sampler.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Look no more."""
        self.sampler.__exit__()

    def document(self) -> dict[str, Any]:
        """What was seen, as Seen.document has it, and what the looks cost; without a look only `said` why."""
        if self.sampler.seen:
            mine = self.sampler.seen[0].document()
            return {**mine, "cost_s": round(self.sampler.cost_s, 4), "said": mine["said"] or self.sampler.said}
        return {"samples": 0, "said": self.said or self.sampler.said, "reasons": {}, "reason_s": {}}


RANK_POINTS = 60  # of a rank's course: all of them go over the network


def of_ranks(watch: Watch, world: Any, torch: Any) -> list[dict[str, Any]]:
    """What every rank's watch saw, and its course, on every rank. `world` gathers numbers and lines as
    train_world.Alone and its like.
    """
    mine = watch.document()
    said = [world.texts(torch, text) for text in (watch.address, mine["said"])]
    rows = watch.sampler.seen[0].course if watch.sampler.seen else []
    thin = rows[:: -(-len(rows) // RANK_POINTS) or 1]
    width = len(COURSE) + 1
    course = [-1.0 if value is None else float(value) for row in thin for value in row]
    course += [-1.0] * (width * RANK_POINTS - len(course))
    found = []
    for row, at, why in zip(world.gather(torch, course + numbers(mine)), *said):
        points = [row[n : n + width] for n in range(0, width * RANK_POINTS, width)]
        told = [[value if value >= 0 else None for value in point] for point in points if point[0] >= 0]
        found.append({**from_numbers(row[width * RANK_POINTS :], at, why), "course": told})
    return found


PARTS = ("least", "median", "most")
NAMES = tuple(name for n in range(64) for name in reason_names(1 << n))  # with those that have only a number


def numbers(seen: dict[str, Any]) -> list[float]:
    """A Watch's document as so many numbers, whatever is in it; -1: not there. For ranks that exchange only those."""
    found = [seen.get("samples", 0), seen.get("seconds", 0.0)]
    found += [seen[key][part] if key in seen else -1 for key in QUANTITIES for part in PARTS]
    found += [-1 if seen.get(key) is None else seen[key] for key in LIMITS]
    return [
        float(one) for one in (*found, *(seen[key].get(name, 0) for key in ("reasons", "reason_s") for name in NAMES))
    ]


def from_numbers(values: list[float], at: str, said: str) -> dict[str, Any]:
    """The document of the GPU at that address again."""
    given = iter(values)
    document: dict[str, Any] = {"address": at, "uuid": "", "said": said, "samples": int(next(given))}
    document["seconds"] = next(given)
    for key in QUANTITIES:
        span = {part: next(given) for part in PARTS}
        if span["most"] >= 0:
            document[key] = span
    document.update({key: value if value >= 0 else None for key, value in zip(LIMITS, given)})
    for key in ("reasons", "reason_s"):
        told = {name: next(given) for name in NAMES}
        document[key] = {name: value for name, value in told.items() if value > 0}
    return document


def address(index: int) -> str:
    """PCI address of CUDA's device, as sysfs writes it; "" where the driver does not say. Makes no context there."""
    buffer = ctypes.create_string_buffer(32)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        handle = ctypes.c_int()
        code = (
            driver.cuInit(0)
            or driver.cuDeviceGet(ctypes.byref(handle), index)
            or driver.cuDeviceGetPCIBusId(buffer, 32, handle)
        )
    except (OSError, AttributeError):
        return ""
    return "" if code else buffer.value.decode().lower()[-12:]
