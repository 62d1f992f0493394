"""A learner of the long training in plain Python, so that its course can be tried where no torch is.

It learns ten weights for each class from how strongly a picture has stripes in each of the ten ways of the tiny set. As
a program (`FOLDER CHECKPOINTS EPOCHS PAUSE_S`) it trains on the set in FOLDER and prints the learning curve.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from operator import mul
from pathlib import Path
from typing import Any

from validation.probes.train_course import Course, Training
from validation.probes.train_data import Pictures, look, pixels
from validation.probes.train_tiny import CLASSES, SIDE

BATCH = 16
RATE = 1.0  # times the course's, which is for deep networks
MOMENTUM = 0.9
_PLACES = [(x / SIDE, y / SIDE) for y in range(SIDE) for x in range(SIDE)]
_WAVES = [
    [
        [part(2 * math.pi * waves * (x * math.cos(angle) + y * math.sin(angle))) / SIDE**2 for x, y in _PLACES]
        for part in (math.cos, math.sin)
    ]
    for waves in (2, 5)
    for angle in (math.pi * step / 5 for step in range(5))
]


class One:
    """A world of one rank."""

    rank, size = 0, 1

    def everyone(self, values: list[float]) -> list[list[float]]:
        return [values]

    def share(self, data: bytes) -> bytes:
        return data


def stripes(data: bytes) -> list[float]:
    """How strong each of the ten sorts of stripes is."""
    grey = [value - 128 for value in pixels(data)[2][::3]]
    return [math.hypot(*(sum(map(mul, grey, wave)) for wave in waves)) / 32 for waves in _WAVES]


class PlainLearner:
    """Softmax regression with momentum."""

    def __init__(self, train: Pictures, val: Pictures, pause_s: float = 0.0) -> None:
        self.pause_s = pause_s
        self.train, self.val = (
            [(stripes(data), label) for data, label in map(one.read, range(len(one)))] for one in (train, val)
        )
        self.weights = [[0.0] * CLASSES for _ in range(CLASSES)]
        self.moved = [[0.0] * CLASSES for _ in range(CLASSES)]
        self.clear([0.0] * 4)

    def feed(self, epoch: int, batches: list[list[int]]) -> Iterator[Any]:
        for batch in batches:
            yield [self.train[number] for number in batch]

    def _answer(self, seen: list[float]) -> list[float]:
        scores = [sum(map(mul, row, seen)) for row in self.weights]
        powers = [math.exp(score - max(scores)) for score in scores]
        return [power / sum(powers) for power in powers]

    def _count(self, sums: list[float], answer: list[float], label: int) -> None:
        place = sum(other >= answer[label] for other in answer) - 1
        for at, value in enumerate((-math.log(answer[label] + 1e-30), place < 1, place < 5, 1)):
            sums[at] += value

    def step(self, batch: Any, rate: float) -> None:
        time.sleep(self.pause_s)
        slope = [[0.0] * CLASSES for _ in range(CLASSES)]
        for seen, label in batch:
            answer = self._answer(seen)
            self._count(self.seen, answer, label)
            for row, value in enumerate(answer):
                for at, one in enumerate(seen):
                    slope[row][at] += (value - (row == label)) * one / len(batch)
        for row in range(CLASSES):
            for at in range(CLASSES):
                self.moved[row][at] = MOMENTUM * self.moved[row][at] + slope[row][at]
                self.weights[row][at] -= RATE * rate * self.moved[row][at]

    def wait(self) -> None:
        pass

    def sums(self) -> list[float]:
        return list(self.seen)

    def clear(self, sums: list[float]) -> None:
        self.seen = list(sums)

    def validate(self) -> list[float]:
        sums = [0.0] * 4
        for seen, label in self.val:
            self._count(sums, self._answer(seen), label)
        return sums

    def state(self) -> bytes:
        return json.dumps([self.weights, self.moved]).encode()

    def restore(self, state: bytes) -> None:
        self.weights, self.moved = json.loads(state)


def course(checkpoints: Path, epochs: int, **same: Any) -> Course:
    return Course(epochs, BATCH, 3, checkpoints, {"network": "plain", "world": 1, **same}, checkpoint_steps=5)


def main(folder: str, checkpoints: str, epochs: str, pause_s: str) -> None:
    train, val = look(folder, "train", CLASSES), look(folder, "val", CLASSES)
    training = Training(course(Path(checkpoints), int(epochs)), PlainLearner(train, val, float(pause_s)), One(), train)
    training.resume()
    position = training.run()
    print(json.dumps({"curve": position.records, "resumed": position.resumed, "predicted": position.predicted}))


if __name__ == "__main__":
    main(*sys.argv[1:])
