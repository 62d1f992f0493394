"""What feeds a long training: pictures decoded and cut, by processes of their own where there are GPUs.

How a picture is cut follows from seed, epoch and its number alone, whichever process does it. Cuts of an area between
8 % and all, sides 3:4 to 4:3, at random, then mirrored or not: Szegedy et al. 2015 ("Going deeper with convolutions"),
section 6, as tf_cnn_benchmarks does. Those of the small networks are moved by up to two pixels.
"""

from __future__ import annotations

import importlib
import math
import random
from collections.abc import Iterator
from typing import Any

from validation.probes.train_data import BadData, Pictures, pixels

AREA, SIDES = (0.08, 1.0), (3 / 4, 4 / 3)
SMALL_SIDE, MOVED = 64, 2
WHOLE = 0.875  # of a picture's shorter side, for validation: 224 of 256
TRIES = 10
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's colours
AHEAD = 4  # batches of each process


class Cut:
    """The pictures as a network takes them: `cut[epoch, number]` is (colours x side x side bytes, label)."""

    def __init__(self, pictures: Pictures, side: int, labels: int, seed: int, learning: bool) -> None:
        """`learning`: cut at random, else the middle."""
        self.pictures, self.side, self.labels, self.seed, self.learning = pictures, side, labels, seed, learning

    def __len__(self) -> int:
        """How many pictures."""
        return len(self.pictures)

    def __getitem__(self, which: tuple[int, int]) -> tuple[Any, int]:
        """BadData names the picture that cannot be used."""
        torch: Any = importlib.import_module("torch")
        epoch, number = which
        data, label = self.pictures.read(number)
        if not 0 <= label < self.labels:
            raise BadData(f"{self.pictures.where(number)} has label {label}, the network distinguishes {self.labels}")
        try:
            wide, high, colours = pixels(data)
        except BadData as fault:
            raise BadData(f"{self.pictures.where(number)}: {fault}") from None
        whole = torch.frombuffer(bytearray(colours), dtype=torch.uint8).view(high, wide, 3).permute(2, 0, 1)
        own = random.Random(f"{self.seed}/{epoch}/{number}")  # noqa: S311 - a cut, not a secret
        if self.side <= SMALL_SIDE:
            return self._moved(torch, self._sized(torch, whole), own), label
        left, top, w, h = self._place(wide, high, own)
        made = self._sized(torch, whole[:, top : top + h, left : left + w])
        return (made.flip(2) if self.learning and own.random() < 0.5 else made).contiguous(), label

    def _place(self, wide: int, high: int, own: random.Random) -> tuple[int, int, int, int]:
        if self.learning:
            for _ in range(TRIES):
                area = wide * high * own.uniform(*AREA)
                sides = math.exp(own.uniform(math.log(SIDES[0]), math.log(SIDES[1])))
                w, h = round(math.sqrt(area * sides)), round(math.sqrt(area / sides))
                if 0 < w <= wide and 0 < h <= high:
                    return own.randint(0, wide - w), own.randint(0, high - h), w, h
        side = max(1, int(min(wide, high) * (1.0 if self.learning else WHOLE)))
        return (wide - side) // 2, (high - side) // 2, side, side

    def _sized(self, torch: Any, part: Any) -> Any:
        if tuple(part.shape[1:]) == (self.side, self.side):
            return part
        resize = torch.nn.functional.interpolate
        made = resize(part[None].float(), (self.side, self.side), mode="bilinear", antialias=True, align_corners=False)
        return made[0].round().clamp(0, 255).byte()

    def _moved(self, torch: Any, made: Any, own: random.Random) -> Any:
        if not self.learning:
            return made.contiguous()
        by = (own.randint(-MOVED, MOVED), own.randint(-MOVED, MOVED))
        return torch.roll(made, by, (1, 2)).contiguous()


class Turns:
    """The batches that are next; another list of them each epoch, for the processes stay."""

    def __init__(self) -> None:
        """None yet."""
        self.next: list[list[tuple[int, int]]] = []

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        """Once through."""
        return iter(self.next)

    def __len__(self) -> int:
        """How many."""
        return len(self.next)


class Feeder:
    """Batches of a split on a device."""

    def __init__(self, torch: Any, cut: Cut, at: Any, workers: int) -> None:
        """`workers`: processes of its own, 0: none."""
        self.torch, self.at, self.turns = torch, at, Turns()
        several: dict[str, Any] = {}
        if workers:
            # a fork of a rank would have what MPI and the RDMA libraries have pinned
            several = {"multiprocessing_context": "forkserver", "persistent_workers": True, "prefetch_factor": AHEAD}
        data: Any = importlib.import_module("torch.utils.data")
        self.loader = data.DataLoader(
            cut, batch_sampler=self.turns, num_workers=workers, pin_memory=at.type == "cuda", **several
        )
        self.mean = torch.tensor(MEAN, device=at).view(1, 3, 1, 1) * 255
        self.deviation = torch.tensor(DEVIATION, device=at).view(1, 3, 1, 1) * 255

    def feed(self, epoch: int, batches: list[list[int]]) -> Iterator[tuple[Any, Any]]:
        """Images with mean 0 and deviation 1, and labels."""
        self.turns.next = [[(epoch, number) for number in batch] for batch in batches]
        for images, labels in self.loader:
            images = images.to(self.at, non_blocking=True).float()
            yield (images - self.mean) / self.deviation, labels.to(self.at, non_blocking=True)
