"""A tiny set of pictures that a small network learns: ten classes, 32 x 32, made by a rule and a seed.

A class is the direction and the number of stripes, its phase, colours and noise are each picture's own, so that no
single pixel tells it. Written as any other set, in each format that train_data.py reads.
"""

from __future__ import annotations

import io
import math
import os
import random
import shutil
import socket
import tarfile
from pathlib import Path

from validation.probes.train_records import example_of, framed

CLASSES, SIDE = 10, 32
TRAIN, VAL = 60, 20
"""Pictures of a class."""
NOISE = 40.0  # of 255, to both sides
FORMATS = ("folders", "tar", "tfrecord")


def picture(label: int, number: int, seed: int = 7) -> bytes:
    """A PPM of 32 x 32: stripes in one of five directions, broad or narrow."""
    own = random.Random(f"{seed}/{label}/{number}")  # noqa: S311 - a picture, not a secret
    angle = math.pi * (label % 5) / 5 + own.uniform(-0.1, 0.1)
    waves, phase = (2 if label < 5 else 5), own.uniform(0, 2 * math.pi)
    along, across = math.cos(angle) * waves / SIDE, math.sin(angle) * waves / SIDE
    colours = [own.uniform(40, 110) for _ in range(3)]
    made = bytearray()
    for y in range(SIDE):
        for x in range(SIDE):
            wave = math.sin(2 * math.pi * (x * along + y * across) + phase)
            for colour in colours:
                made.append(max(0, min(255, int(128 + colour * wave + own.uniform(-NOISE, NOISE)))))
    return b"P6\n%d %d\n255\n" % (SIDE, SIDE) + bytes(made)


def make(folder: Path, kind: str = "folders", train: int = TRAIN, val: int = VAL) -> None:
    """Write the set there; nothing where it is already. Another process may do the same at the same time."""
    if (folder / "train").is_dir():
        return
    aside = folder.with_name(f".{folder.name}.{socket.gethostname()}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    for split, count, first in (("train", train, 0), ("val", val, train)):
        pictures = [(label, number) for number in range(first, first + count) for label in range(CLASSES)]
        (aside / split).mkdir(parents=True)
        {"folders": _folders, "tar": _tar, "tfrecord": _records}[kind](aside / split, pictures)
    try:
        aside.rename(folder)
    except OSError:  # somebody else was faster
        shutil.rmtree(aside, ignore_errors=True)


def _folders(folder: Path, pictures: list[tuple[int, int]]) -> None:
    for label, number in pictures:
        place = folder / f"class-{label}"
        place.mkdir(exist_ok=True)
        (place / f"{number:04}.ppm").write_bytes(picture(label, number))


def _halves(pictures: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    return [pictures[: len(pictures) // 2], pictures[len(pictures) // 2 :]]


def _tar(folder: Path, pictures: list[tuple[int, int]]) -> None:
    for part, some in enumerate(_halves(pictures)):
        with tarfile.open(folder / f"{part:06}.tar", "w") as shard:
            for label, number in some:
                for ending, data in (("ppm", picture(label, number)), ("cls", str(label).encode())):
                    member = tarfile.TarInfo(f"{label}-{number:04}.{ending}")
                    member.size = len(data)
                    shard.addfile(member, io.BytesIO(data))


def _records(folder: Path, pictures: list[tuple[int, int]]) -> None:
    for part, some in enumerate(_halves(pictures)):
        with (folder / f"{folder.name}-{part:05}-of-00002").open("wb") as shard:
            for label, number in some:
                shard.write(framed(example_of(picture(label, number), label)))
