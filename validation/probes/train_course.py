"""The course of a long training: epochs, schedule, checkpoints, accuracy, prediction. What computes is a Learner's.

Everything that decides what is computed follows from the seed and the position: the order of the pictures, how each is
cut, the learning rate. So a training that was killed and continued has the curve of one that was not: to the bit where
the same program on the same processors is exact, as torch is there on one thread, else within what its kernels vary.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from validation.base.counting import number_of
from validation.probes import train_keep
from validation.probes.train_cnn import CannotTrain
from validation.probes.train_data import Pictures, order, share

RATES = ((0.0, 0.4), (10 / 90, 0.04), (60 / 90, 0.004))
"""From which part of the epochs on which learning rate: Dell whitepaper 2019, section 7.4.1, 0.4;10;0.04;60;0.004."""
RATED_IMAGES = 1024
"""Images of a step that these are for: its 8 ranks with 128 each."""
WARMUP = 5 / 90
"""Of the epochs, in larger worlds: Goyal et al. 2017, section 2.2; the linear scaling is of section 2.1."""
PROGRESS = "progress.json"
PROGRESS_S = 2.0
LOOKED_AT_S = 10.0  # the input pipeline by itself, at most


class Diverged(Exception):
    """The loss is no number any more."""


class Ranks(Protocol):
    """The other ranks: train_world.Alone and what is made of it."""

    rank: int
    size: int

    def everyone(self, values: list[float]) -> list[list[float]]:
        """The numbers of every rank, a row each."""

    def share(self, data: bytes) -> bytes:
        """What rank 0 has."""


class Learner(Protocol):
    """A network on this rank, and what feeds it."""

    def feed(self, epoch: int, batches: list[list[int]]) -> Iterator[Any]:
        """The pictures of each batch, decoded, cut for this epoch, ready for a step."""

    def step(self, batch: Any, rate: float) -> None:
        """Learn from a batch; counts loss and right answers."""

    def wait(self) -> None:
        """Until all that was asked for is computed."""

    def sums(self) -> list[float]:
        """Loss times images, right by the first answer, right within five, images: since `clear`."""

    def clear(self, sums: list[float]) -> None:
        """Count from here on."""

    def validate(self) -> list[float]:
        """The same four of this rank's part of the validation pictures."""

    def state(self) -> bytes:
        """Everything that learning goes on from, of all ranks; what rank 0 gets is whole. All ranks call it."""

    def restore(self, state: bytes) -> None:
        """Go on from there."""


@dataclass
class Course:
    """What is asked of a training. `checkpoint_steps` 0: so many that it is written about every ten minutes."""

    epochs: int
    batch: int
    seed: int
    folder: Path
    same: dict[str, Any]  # what a checkpoint has to be of
    warmup: int = 3
    steps: int = 10
    checkpoint_steps: int = 0
    checkpoint_s: float = 600.0


@dataclass
class Position:
    """How far a training is. `partial`: sums and seconds of the epoch so far, of each rank."""

    step: int = 0  # of the whole training
    epoch: int = 0
    at: int = 0  # batches of this epoch that are done
    partial: list[list[float]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    predicted: dict[str, float] = field(default_factory=dict)
    resumed: list[dict[str, int]] = field(default_factory=list)
    seconds: float = 0.0  # of training, validation and checkpoints, without what was lost


def learning_rate(done: float, images: int) -> float:
    """The rate after this share of the epochs, for so many images a step: linear, with a warm-up above the paper's."""
    scale = images / RATED_IMAGES
    rate = next(rate for begin, rate in reversed(RATES) if done >= begin)
    if scale > 1 and done < WARMUP:
        return RATES[0][1] * (1 + (scale - 1) * done / WARMUP)
    return rate * scale


class Training:
    """One rank's way through a course."""

    def __init__(self, course: Course, learner: Learner, ranks: Ranks, pictures: Pictures) -> None:
        """CannotTrain where there are fewer pictures than one step takes."""
        self.course, self.learner, self.ranks = course, learner, ranks
        self.count, self.images = len(pictures), ranks.size * course.batch
        self.steps = self.count // self.images
        if self.steps < 1:
            raise CannotTrain(
                f"{self.count} pictures are fewer than a step takes: {number_of(ranks.size, 'rank')} with a "
                f"batch of {course.batch}"
            )
        self.position = Position()
        self.every, self.shown = course.checkpoint_steps, 0.0

    def batches(self, epoch: int) -> list[list[int]]:
        """This rank's batches of an epoch."""
        numbers = order(self.course.seed, epoch, self.count)
        return share(numbers, self.ranks.rank, self.ranks.size, self.course.batch)

    def resume(self) -> None:
        """Go on from the newest checkpoint, where there is one. CannotTrain where it is of another training."""
        found, why = None, ""
        if self.ranks.rank == 0:
            try:
                why = train_keep.usable(self.course.folder)
                found = None if why else train_keep.load(self.course.folder, self.course.same)
            except train_keep.Refused as fault:
                why = str(fault)
        told = json.loads(self.ranks.share(json.dumps([why, found[1] if found else None]).encode()))
        if told[0]:
            raise CannotTrain(told[0])
        if told[1] is None:
            return
        self.learner.restore(self.ranks.share(found[0] if found else b""))
        self.position = Position(**told[1]["position"])
        mark = {"epoch": self.position.epoch, "step": self.position.at}
        self.position.resumed.append(mark)
        self.say(f"continued in epoch {mark['epoch'] + 1} after step {mark['step']} of {self.steps}")

    def predict(self) -> None:
        """Measure the input by itself and the training, forget what was learned, and say how long it will take."""
        course, learner = self.course, self.learner
        batches = self.batches(0)
        tried = (batches * (1 + (course.warmup + course.steps) // len(batches)))[: course.warmup + course.steps]
        begin, seen = time.perf_counter(), 0
        for _ in learner.feed(0, tried):
            seen += 1
            if time.perf_counter() - begin > LOOKED_AT_S:
                break
        fed = self.slowest(time.perf_counter() - begin) / seen
        before = self.ranks.share(learner.state())
        feed = learner.feed(0, tried)
        for at, batch in enumerate(feed):
            learner.step(batch, 0.0)
            if at + 1 == course.warmup:
                learner.wait()
                begin = time.perf_counter()
        learner.wait()
        step_s = self.slowest(time.perf_counter() - begin) / course.steps
        learner.restore(before)
        learner.clear([0.0] * 4)
        self.position.predicted = {
            "step_s": round(step_s, 6),
            "images_per_s": round(self.images / step_s, 3),
            "input_images_per_s": round(self.images / fed, 3),
            "hours": course.epochs * self.steps * step_s / 3600,
        }
        told = self.position.predicted
        self.say(
            f"{number_of(course.epochs, 'epoch')} of {self.count} images: {told['hours']:.3g} h predicted at "
            f"{told['images_per_s']:.4g} images/s; the input by itself {told['input_images_per_s']:.4g} images/s"
        )

    def run(self) -> Position:
        """All that is left of the course."""
        position = self.position
        if not position.predicted:
            self.predict()
        self.every = self.every or max(1, int(self.course.checkpoint_s / max(position.predicted["step_s"], 1e-6)))
        while position.epoch < self.course.epochs:
            self.epoch()
        self.progress(0.0, final=True)
        return position

    def epoch(self) -> None:
        """What is left of the epoch: its steps, the validation, a line of the curve, a checkpoint."""
        position, learner, mine = self.position, self.learner, self.ranks.rank
        begin = time.perf_counter()
        done = position.partial[mine] if position.partial else [0.0] * 6
        learner.clear(done[:4])
        train_s, input_s = done[4], done[5]
        batches = self.batches(position.epoch)[position.at :]
        feed = learner.feed(position.epoch, batches)
        rate, start, since = 0.0, time.perf_counter(), position.at
        for left in range(len(batches), 0, -1):
            asked = time.perf_counter()
            batch = next(feed)
            input_s += time.perf_counter() - asked
            rate = learning_rate((position.epoch + position.at / self.steps) / self.course.epochs, self.images)
            learner.step(batch, rate)
            position.at += 1
            position.step += 1
            if mine == 0 and time.perf_counter() - self.shown > PROGRESS_S:
                self.progress((position.at - since) * self.images / (time.perf_counter() - start))
            if position.step % self.every == 0 and left > 1:
                learner.wait()
                taken = train_s + time.perf_counter() - start
                self.partial([*learner.sums(), taken, input_s])
                position.seconds += time.perf_counter() - begin
                begin = time.perf_counter()
                self.keep()
                train_s, start, since = taken, time.perf_counter(), position.at
        learner.wait()
        train_s += time.perf_counter() - start
        rows = self.partial([*learner.sums(), train_s, input_s])
        valid = time.perf_counter()
        seen = self.ranks.everyone(learner.validate())
        position.records.append(self.record(rows, seen, rate, self.slowest(time.perf_counter() - valid)))
        position.epoch, position.at, position.partial = position.epoch + 1, 0, []
        position.seconds += time.perf_counter() - begin
        self.keep()

    def partial(self, mine: list[float]) -> list[list[float]]:
        """Sums and seconds of every rank; Diverged where a loss is no number any more."""
        rows = self.ranks.everyone(mine)
        if not all(math.isfinite(row[0]) for row in rows):
            raise Diverged(
                f"the loss is no number any more, in epoch {self.position.epoch + 1} before step {self.position.at + 1}"
            )
        self.position.partial = rows
        return rows

    def record(self, rows: list[list[float]], seen: list[list[float]], rate: float, val_s: float) -> dict[str, Any]:
        """A line of the learning curve."""
        loss, first, five, images = (sum(row[at] for row in rows) for at in range(4))
        val_loss, val_first, val_five, val_images = (sum(row[at] for row in seen) for at in range(4))
        train_s = max(row[4] for row in rows)
        made = {
            "epoch": self.position.epoch + 1,
            "rate": rate,
            "images": int(images),
            "loss": loss / images,
            "train_top1": first / images,
            "train_top5": five / images,
            "val_images": int(val_images),
            "val_loss": val_loss / val_images,
            "val_top1": val_first / val_images,
            "val_top5": val_five / val_images,
            "train_s": round(train_s, 3),
            "input_s": round(max(row[5] for row in rows), 3),
            "val_s": round(val_s, 3),
            "images_per_s": round(images / train_s, 3),
        }
        self.say(
            f"epoch {made['epoch']} of {self.course.epochs}: loss {made['loss']:.4f}, training top-1 "
            f"{made['train_top1']:.1%}, top-5 {made['train_top5']:.1%}, validation top-1 {made['val_top1']:.1%}, "
            f"top-5 {made['val_top5']:.1%}, {made['images_per_s']:.4g} images/s"
        )
        return made

    def keep(self) -> None:
        """A checkpoint of this position."""
        begin = time.perf_counter()
        state = self.learner.state()
        if self.ranks.rank == 0:
            position = asdict(self.position)
            about = {**self.course.same, "step": self.position.step, "position": position}
            try:
                train_keep.save(self.course.folder, state, about)
            except OSError as fault:
                raise RuntimeError(f"no checkpoint can be written to {self.course.folder}: {fault.strerror}") from None
        self.position.seconds += time.perf_counter() - begin

    def progress(self, images_per_s: float, final: bool = False) -> None:
        """A small file for whoever looks on."""
        self.shown = time.perf_counter()
        if self.ranks.rank:
            return
        sums, position = self.learner.sums(), self.position
        told = {
            "epoch": position.epoch + (not final),
            "epochs": self.course.epochs,
            "step": position.at,
            "steps": self.steps,
            "images_per_s": round(images_per_s, 1),
            "loss": sums[0] / sums[3] if sums[3] and math.isfinite(sums[0]) else None,
            "last": position.records[-1] if position.records else None,
            "predicted": position.predicted,
            "written": time.time(),
        }
        aside = self.course.folder / f".{PROGRESS}.partial"
        try:
            aside.write_text(json.dumps(told))
            aside.replace(self.course.folder / PROGRESS)
        except OSError as fault:
            print(f"no progress is written: {fault.strerror}", file=sys.stderr)

    def slowest(self, seconds: float) -> float:
        """Of all ranks."""
        return max(row[0] for row in self.ranks.everyone([seconds]))

    def say(self, words: str) -> None:
        """A line for the log, once."""
        if self.ranks.rank == 0:
            print(words, file=sys.stderr, flush=True)
