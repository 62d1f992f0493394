"""What pooling wins: recorded requests for GPUs replayed against one pool and against GPUs that each group has alone.

One rule for both: first come, first served, and nobody passes who came earlier. Whole GPUs are taken whole; the part of
a GPU goes where the least is left that suffices. Nothing is drawn at random: the same requests give the same outcome.
Times are in seconds, sizes in parts of a GPU.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True)
class RecordedRequest:
    """Somebody of `group` came at `arrived_s` and held `parts` for `held_s`."""

    arrived_s: int
    held_s: int
    parts: int
    group: str


@dataclass(frozen=True)
class ReplayOutcome:
    """How requests fared with `gpus`. `waits_s` of those that began, in the order of arrival; `refused`: how many want
    more than there is. `work_gpu_s`: GPU-seconds that were held, from the first arrival to the last end.
    """

    gpus: int
    waits_s: tuple[int, ...]
    refused: int
    work_gpu_s: float
    first_s: int
    last_s: int

    @property
    def mean_s(self) -> float:
        """Average waiting time; 0 where nothing began."""
        return fmean(self.waits_s) if self.waits_s else 0.0

    @property
    def held(self) -> float:
        """Share of the GPUs' time that was held; 0 where no time passed."""
        time = (self.last_s - self.first_s) * self.gpus
        return self.work_gpu_s / time if time else 0.0

    def percentile_s(self, percent: int) -> int:
        """The waiting time that so many of a hundred requests did not exceed; 0 where nothing began."""
        return sorted(self.waits_s)[-(-percent * len(self.waits_s) // 100) - 1] if self.waits_s else 0


def _whole(parts: int, parts_per_gpu: int) -> int:
    """GPUs that a request needs where it has them for itself."""
    return -(-parts // parts_per_gpu)


class _Gpus:
    """Which of them are free, and how much of those that are shared."""

    def __init__(self, gpus: int, parts_per_gpu: int) -> None:
        self.size = parts_per_gpu
        self.idle = list(range(gpus))  # a heap
        self.shared: dict[int, int] = {}  # GPU -> parts that are left

    def take(self, parts: int) -> list[tuple[int, int]] | None:
        """(GPU, parts) that are now held; None where it does not fit."""
        whole, rest = divmod(parts, self.size)
        place = min(((left, gpu) for gpu, left in self.shared.items() if left >= rest), default=None) if rest else None
        if whole + (1 if rest and place is None else 0) > len(self.idle):
            return None
        taken = [(heapq.heappop(self.idle), self.size) for _ in range(whole)]
        if rest:
            left, gpu = place or (self.size, heapq.heappop(self.idle))
            self.shared[gpu] = left - rest
            taken.append((gpu, rest))
        return taken

    def give_back(self, taken: Sequence[tuple[int, int]]) -> None:
        for gpu, parts in taken:
            left = self.shared.pop(gpu, 0) + parts
            if left == self.size:
                heapq.heappush(self.idle, gpu)
            else:
                self.shared[gpu] = left


def replay(requests: Sequence[RecordedRequest], gpus: int, parts_per_gpu: int) -> ReplayOutcome:
    """The requests against so many GPUs. What ends at a moment is free for what begins in it."""
    coming = sorted(requests, key=lambda r: r.arrived_s)
    there = _Gpus(gpus, parts_per_gpu)
    running: list[tuple[int, int, list[tuple[int, int]]]] = []  # end, number, what is held
    waits: list[int] = []
    work = 0
    first = now = last = coming[0].arrived_s if coming else 0
    for request in coming:
        if _whole(request.parts, parts_per_gpu) > gpus:
            continue
        now = max(now, request.arrived_s)
        while True:
            while running and running[0][0] <= now:
                there.give_back(heapq.heappop(running)[2])
            taken = there.take(request.parts)
            if taken is not None:
                break
            now = running[0][0]  # somebody holds something: else all GPUs would be free
        waits.append(now - request.arrived_s)
        work += request.held_s * request.parts
        last = max(last, now + request.held_s)
        heapq.heappush(running, (now + request.held_s, len(waits), taken))
    return ReplayOutcome(gpus, tuple(waits), len(coming) - len(waits), work / parts_per_gpu, first, last)


def shares(requests: Sequence[RecordedRequest], gpus: int) -> dict[str, int] | None:
    """GPUs of each group, as whole numbers by what it held, each at least one; None where there are too few.

    The largest remainders get what is left over (Hamilton's method). That is the best that somebody could have known
    beforehand: a site that gave out its GPUs otherwise would have fared worse.
    """
    held: dict[str, int] = {}
    for request in requests:
        held[request.group] = held.get(request.group, 0) + request.held_s * request.parts
    total = sum(held.values())
    if not held or len(held) > gpus:
        return None
    spare = gpus - len(held)
    exact = {name: spare * value / total if total else spare / len(held) for name, value in held.items()}
    found = {name: 1 + int(value) for name, value in exact.items()}
    by_rest = sorted(exact, key=lambda name: (int(exact[name]) - exact[name], name))
    for name in by_rest[: gpus - sum(found.values())]:
        found[name] += 1
    return dict(sorted(found.items()))


def siloed(requests: Sequence[RecordedRequest], each: Mapping[str, int], parts_per_gpu: int) -> ReplayOutcome:
    """Each group against its own GPUs alone, put together."""
    alone = [replay([r for r in requests if r.group == name], gpus, parts_per_gpu) for name, gpus in each.items()]
    return ReplayOutcome(
        gpus=sum(each.values()),
        waits_s=tuple(wait for outcome in alone for wait in outcome.waits_s),
        refused=sum(outcome.refused for outcome in alone),
        work_gpu_s=sum(outcome.work_gpu_s for outcome in alone),
        first_s=min(outcome.first_s for outcome in alone),
        last_s=max(outcome.last_s for outcome in alone),
    )


def fewest(wanted: Callable[[int], bool], least: int, most: int) -> int:
    """A number from `least` to `most` that is enough where one less is not, by bisection; `most` is taken to be enough.

    More GPUs do not always mean shorter waits for every request, so it need not be the smallest of all such numbers.
    """
    return least + bisect_left(range(least, most), True, key=wanted)


def peak(requests: Sequence[RecordedRequest], parts_per_gpu: int) -> int:
    """GPUs with which nobody of them waits: the most at once, each request on GPUs of its own."""
    sizes = [(r, _whole(r.parts, parts_per_gpu)) for r in requests]
    changes = [(r.arrived_s, size) for r, size in sizes] + [(r.arrived_s + r.held_s, -size) for r, size in sizes]
    now, most = 0, max((size for _, size in sizes), default=0)
    for _, change in sorted(changes):  # at one moment what ends comes first
        now += change
        most = max(most, now)
    return most


def enough(requests: Sequence[RecordedRequest], mean_s: float, parts_per_gpu: int) -> int:
    """GPUs with which these requests wait no longer than `mean_s` on average."""
    least = max((_whole(r.parts, parts_per_gpu) for r in requests), default=0)
    most = peak(requests, parts_per_gpu)
    return fewest(lambda gpus: replay(requests, gpus, parts_per_gpu).mean_s <= mean_s, least, most)


@dataclass(frozen=True)
class Gain:
    """The pool against the same GPUs divided (`divided`, `each` group's number), and what it takes to be no worse:
    `silos`, so many GPUs that no group waits longer than in the pool; `smaller`, a pool in which requests wait no
    longer than in the divided GPUs. `groups`: average waiting time of each in the pool and with its own share, None
    where nothing of it could begin there.
    """

    pool: ReplayOutcome
    divided: ReplayOutcome
    each: dict[str, int]
    silos: ReplayOutcome
    silos_each: dict[str, int]
    smaller: ReplayOutcome
    groups: dict[str, tuple[float, float | None]]


def gain(requests: Sequence[RecordedRequest], gpus: int, parts_per_gpu: int) -> Gain | None:
    """What one pool of `gpus` won for these requests; None where they cannot be divided among the groups.

    A request that wants more than all GPUs is in neither.
    """
    fit = sorted((r for r in requests if _whole(r.parts, parts_per_gpu) <= gpus), key=lambda r: r.arrived_s)
    each = shares(fit, gpus)
    if each is None or len(each) < 2:
        return None
    pool = replay(fit, gpus, parts_per_gpu)
    divided = siloed(fit, each, parts_per_gpu)
    mine = {name: [r for r in fit if r.group == name] for name in each}
    in_pool: dict[str, list[int]] = {name: [] for name in each}
    for request, wait in zip(fit, pool.waits_s, strict=True):
        in_pool[request.group].append(wait)
    needed = {name: enough(mine[name], fmean(in_pool[name]), parts_per_gpu) for name in each}
    smaller = enough(fit, divided.mean_s, parts_per_gpu)
    alone = {name: replay(mine[name], each[name], parts_per_gpu) for name in each}
    return Gain(
        pool=pool,
        divided=divided,
        each=each,
        silos=siloed(fit, needed, parts_per_gpu),
        silos_each=needed,
        smaller=replay(fit, smaller, parts_per_gpu),
        groups={n: (fmean(in_pool[n]), alone[n].mean_s if alone[n].waits_s else None) for n in each},
    )
