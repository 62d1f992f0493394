#!/usr/bin/env python3
"""How often the part at fault is named: constructed pair matrices, clean and with parts at fault, and failing jobs.

    .venv/bin/python benchmarks/localise.py --clean 60 --seeds 2

Nothing is measured on a network: shapes, noise and faults are those of tests/unit/test_suspects.py, other seeds.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.matrices import Site
from tests.unit.test_suspects import FAULTS, NOISES, SHAPES, TWO, named
from validation.analysis.group_tests import narrow

FIRST_SEED = 5000
FEW_PAIRS = 250


def site(shape: str, noise: str, faults: dict[tuple[str, tuple[str, ...], str], float]) -> Site:
    return Site(SHAPES[shape], NOISES[noise], faults, across=0.9 if SHAPES[shape].leaves else 1.0)


def clean(times: int) -> None:
    count = alarms = 0
    for shape in SHAPES:
        seeds = times if len(SHAPES[shape].pairs(random.Random(0))) < FEW_PAIRS else max(1, times // 8)
        for noise in NOISES:
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                count += 1
                alarms += bool(named(site(shape, noise, {}), seed, bool(seed % 2)))
    print(f"clean: {count} matrices, {alarms} with somebody named")


def faulty(seeds: int) -> None:
    right = count = 0
    by_confidence: dict[float, list[int]] = defaultdict(lambda: [0, 0])
    for noise in ("quiet", "usual", "disturbed", "heavy"):
        for lost in (0.15, 0.3, 0.6, 0.95):
            for shape, fault in FAULTS:
                for seed in range(seeds):
                    found = named(site(shape, noise, {fault: lost}), FIRST_SEED + seed)
                    count += 1
                    right += [(g.kind, g.subject, g.direction) for g in found] == [fault]
                    for g in found:
                        of = by_confidence[round(g.confidence, 1)]
                        of[0] += (g.kind, g.subject, g.direction) == fault
                        of[1] += 1
    print(f"one part at fault: {right} of {count} named, it alone, with its direction")
    for confidence, (good, of) in sorted(by_confidence.items()):
        print(f"  confidence {confidence}: {good} of {of} right")
    right = count = 0
    for noise in ("quiet", "usual", "disturbed"):
        for shape, faults in TWO:
            for seed in range(2 * seeds):
                count += 1
                found = named(site(shape, noise, faults), FIRST_SEED + seed)
                right += {(g.kind, g.subject, g.direction) for g in found} == set(faults)
    print(f"two parts at fault: {right} of {count} named, both and nobody else")


def jobs(seeds: int) -> None:
    for count, bad in ((232, 5), (232, 0), (232, 1), (1000, 5), (60, 5), (8, 1)):
        took = []
        for seed in range(seeds):
            names = [f"n{i}" for i in range(count)]
            faulty = set(random.Random(seed).sample(names, bad))
            found = narrow(names, lambda job, faulty=faulty: not faulty & set(job))
            assert set(found.bad) == faulty
            took.append((found.jobs, found.rounds))
        number, rounds = (sorted(t[i] for t in took) for i in (0, 1))
        middle = len(took) // 2
        print(
            f"{count} nodes, {bad} bad: {number[0]} to {number[-1]} jobs, median {number[middle]}; "
            f"{rounds[0]} to {rounds[-1]} rounds, median {rounds[middle]}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clean", type=int, default=60, help="clean matrices of each shape and noise")
    parser.add_argument("--seeds", type=int, default=2, help="of each fault; times 100 for jobs")
    asked = parser.parse_args()
    started = time.process_time()
    clean(asked.clean)
    faulty(asked.seeds)
    jobs(100 * asked.seeds)
    print(f"{time.process_time() - started:.0f} s of CPU")


if __name__ == "__main__":
    main()
