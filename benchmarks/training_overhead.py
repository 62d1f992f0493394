"""What the short training of the toolkit costs over the same training by hand, on processors.

    python3 benchmarks/training_overhead.py                                   # one rank; with the python that has torch
    python3 -m torch.distributed.run --standalone --nproc_per_node 2 benchmarks/training_overhead.py --framework ddp

The same network, images and optimizer twice in one process: once with the step of validation/probes/train_cnn.py, once
with the loop that torch's tutorials have. Blocks of both in turns, the order changing, so that whatever else this
machine does meets both. One line of JSON: the ratio of both in seconds of the processor and of the clock, as the median
of pairs of blocks with the 95 % interval of a bootstrap.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from validation.probes import train_cnn
from validation.probes.train_world import join

RESAMPLES = 2000


def by_hand(torch: Any, training: train_cnn.Training, args: argparse.Namespace) -> Callable[[], None]:
    """The usual loop on a network of its own, as `training` began; over several ranks with DistributedDataParallel."""
    torch.manual_seed(99)
    model = train_cnn.build(torch, args.model)
    model.load_state_dict(training.model.state_dict())
    if args.framework == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=train_cnn.LEARNING_RATE, momentum=train_cnn.MOMENTUM,
        weight_decay=training.optimizer.param_groups[0]["weight_decay"],
    )  # fmt: skip
    loss_of = torch.nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad()
        loss = loss_of(model(training.images), training.labels)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def block(step: Callable[[], Any], steps: int) -> tuple[float, float]:
    """Seconds of the processor and of the clock of one step, on average."""
    clock, used = time.perf_counter(), time.process_time()
    for _ in range(steps):
        step()
    return (time.process_time() - used) / steps, (time.perf_counter() - clock) / steps


def ratio(mine: list[float], other: list[float]) -> list[float]:
    """Median of the ratios of the pairs, and its 95 % interval."""
    pairs = [a / b for a, b in zip(mine, other, strict=True)]
    chance = random.Random(1)
    found = sorted(statistics.median(chance.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    return [round(value, 4) for value in (statistics.median(pairs), found[49], found[-50])]


def main() -> None:
    """One rank."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--framework", choices=("none", "ddp"), default="none")
    parser.add_argument("--model", default="small-resnet")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=5, help="of a block")
    parser.add_argument("--blocks", type=int, default=60)
    args = parser.parse_args()
    args.device, args.precision = "cpu", "fp32"
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    world = join(torch, args.framework, "", 600)
    training, found = train_cnn.prepare(args, torch, world)
    if training is None:
        raise SystemExit(str(found["cannot"]))
    hand = by_hand(torch, training, args)
    training.begin()
    ways = {"toolkit": training.step, "by hand": hand}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for step in ways.values():
        block(step, args.steps)  # not counted
    for turn in range(args.blocks):
        for name in sorted(ways, reverse=bool(turn % 2)):
            times[name].append(block(ways[name], args.steps))
    cpu, wall = ({name: [one[at] for one in each] for name, each in times.items()} for at in (0, 1))
    if world.rank == 0:
        print(json.dumps({
            "torch": torch.__version__, "framework": args.framework, "ranks": world.size, "model": args.model,
            "batch": args.batch, "blocks": args.blocks, "steps": args.steps, "load": os.getloadavg()[0],
            "toolkit_ms": round(1e3 * statistics.median(wall["toolkit"]), 3),
            "by_hand_ms": round(1e3 * statistics.median(wall["by hand"]), 3),
            "cpu_ratio": ratio(cpu["toolkit"], cpu["by hand"]), "wall_ratio": ratio(wall["toolkit"], wall["by hand"]),
        }), flush=True)  # fmt: skip
    world.close()


if __name__ == "__main__":
    main()
