"""Pictures with labels of a long training, read from folders, tar shards or TFRecord files, in a fixed order.

    DATA/train/CLASS/NAME.jpg       folders; the classes are the names of the folders, in order
    DATA/train/*.tar                shards: KEY.jpg beside KEY.cls, which has the label as a whole number
    DATA/train-00000-of-01024       TFRecord, as the scripts for ImageNet name them, or *.tfrecord

and the same of `val` or `validation`. A format is found by looking; what fits none is named. JPEG and PNG are decoded
by Pillow, PPM (P6) without a library. Nothing here imports torch: only the controller's and a node's Python are needed.
"""

from __future__ import annotations

import importlib
import io
import os
import random
import re
import sys
import tarfile
from array import array
from collections.abc import Iterator
from pathlib import Path

from validation.probes.train_records import Unreadable, example, spans

PICTURES = (".jpg", ".jpeg", ".png", ".ppm")
SPLITS = {"train": ("train",), "val": ("val", "validation")}
SHARD = re.compile(r"(-\d+-of-\d+|\.tfrecords?)$")
IN_RECORD = -1  # the label is in the record
ONE_BASED = ("image/class/synset", "image/class/text")
"""Features that the scripts for ImageNet write, whose labels begin with 1."""
MOUNTS = Path("/proc/self/mounts")
NETWORK = ("nfs", "cifs", "smb", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "9p")
"""File systems whose data come over a network; others are told by a source with a colon."""
MAGIC = {b"\xff\xd8": "JPEG", b"\x89P": "PNG", b"P6": "PPM"}


class BadData(Exception):
    """Why pictures cannot be had from a folder, in words, with the file."""


class Pictures:
    """All pictures of a split: where each is, and its label. `kind`: folders, tar, tfrecord, or open."""

    def __init__(self, kind: str, classes: int) -> None:
        """An empty one. `classes` 0: the labels are in the records."""
        self.kind, self.classes = kind, classes
        self.files: list[str] = []
        self.file_of, self.offset, self.size, self.label = array("l"), array("q"), array("q"), array("i")
        self._open: dict[int, int] = {}

    def __len__(self) -> int:
        """How many pictures."""
        return len(self.size)

    def add(self, file: int, offset: int, size: int, label: int) -> None:
        """One more; `size` 0: the whole file."""
        self.file_of.append(file)
        self.offset.append(offset)
        self.size.append(size)
        self.label.append(label)

    def opened(self, descriptor: int, name: str) -> None:
        """Name the first file, which is open already: one that has no path, for this process and its forks."""
        self.files.append(name)
        self._open[0] = descriptor

    def __getstate__(self) -> dict[str, object]:
        """Without open files, which another process does not have."""
        return {**self.__dict__, "_open": {}}

    def where(self, at: int) -> str:
        """A picture's file, and its place in it where that has several."""
        path = self.files[self.file_of[at]]
        return path if self.kind == "folders" else f"{path}, byte {self.offset[at]}"

    def read(self, at: int) -> tuple[bytes, int]:
        """A picture as it is stored, and its label from 0 on. BadData names what cannot be read."""
        try:
            data = self._bytes(at)
            if self.label[at] != IN_RECORD:
                return data, self.label[at]
            features = example(data)
            label = int(features["image/class/label"][0])
            one_based = any(name in features for name in ONE_BASED)
            return features["image/encoded"][0], label - int(one_based)
        except (OSError, Unreadable, KeyError, IndexError, TypeError) as fault:
            missing = isinstance(fault, (KeyError, IndexError))
            why = f"the record has no {fault}" if missing else f"{type(fault).__name__}: {fault}"
            raise BadData(f"{self.where(at)} cannot be read: {why}") from None

    def _bytes(self, at: int) -> bytes:
        number = self.file_of[at]
        if self.kind == "folders":
            return Path(self.files[number]).read_bytes()
        if number not in self._open:
            self._open[number] = os.open(self.files[number], os.O_RDONLY)
        data = os.pread(self._open[number], self.size[at], self.offset[at])  # for forked readers share the place in it
        if len(data) != self.size[at]:
            raise Unreadable("the file is shorter than when it was looked through")
        return data


def storage_of(data: str, mounts: Path = MOUNTS) -> str:
    """File system that a folder is on, in words, with the server of one that is reached over a network."""
    real = os.path.realpath(data)
    found = ("", "an unknown file system")
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return found[1]
    for line in lines:
        source, where, kind, *_ = line.split(" ")
        at = where.replace("\\040", " ")
        if (real + "/").startswith(at.rstrip("/") + "/") and len(at) >= len(found[0]):
            far = kind.startswith(NETWORK) or ":" in source
            found = (at, f"{kind} of {source}, over the network" if far else kind)
    return found[1]


def order(seed: int, epoch: int, count: int) -> list[int]:
    """The order of an epoch's pictures: the same for the same seed, on whatever machine."""
    numbers = list(range(count))
    random.Random(f"{seed}/{epoch}").shuffle(numbers)  # noqa: S311 - order, not secrets
    return numbers


def share(numbers: list[int], rank: int, world: int, batch: int) -> list[list[int]]:
    """The batches of one rank: of each step's world x batch pictures its part; the rest of the epoch is left out."""
    step = world * batch
    return [numbers[at + rank * batch : at + (rank + 1) * batch] for at in range(0, len(numbers) - step + 1, step)]


def look(data: str, split: str, labels: int, most: int = 0) -> Pictures:
    """The pictures of `train` or `val` under a folder; BadData where it has none that can be used.

    `labels`: how many classes the network tells apart; `most`: no more is looked for after so many, 0 for all.
    """
    root = Path(data)
    if not root.is_dir():
        raise BadData(
            f"there is no folder {data} for the training; of a container it has to be one of its volumes "
            "(horovod_volumes), and readable for its user"
        )
    try:
        found = _look(root, split, most or sys.maxsize)
    except OSError as fault:
        raise BadData(f"{fault.filename or data} cannot be read: {fault.strerror}") from None
    except (Unreadable, tarfile.TarError) as fault:
        raise BadData(str(fault)) from None
    if not len(found):
        raise BadData(f"{data} has no pictures of split {split!r}")
    if found.classes > labels:
        raise BadData(f"{data} has {found.classes} classes, the network distinguishes {labels}")
    _try_first(found, labels)
    return found


def _look(root: Path, split: str, most: int) -> Pictures:
    for name in SPLITS[split]:
        folder = root / name
        if folder.is_dir():
            entries = sorted(folder.iterdir())
            classes = [entry for entry in entries if entry.is_dir()]
            files = [entry for entry in entries if entry.is_file() and not entry.name.startswith(".")]
            if classes:
                return _folders(classes, most)
            return _files(files, f"{folder} is empty", most)
    files = sorted(
        f for f in root.iterdir() if f.is_file() and f.name.startswith(tuple(f"{n}-" for n in SPLITS[split]))
    )
    if files:
        return _files(files, "", most)
    there = sorted(entry.name for entry in root.iterdir())
    what = f"it has {', '.join(there[:3])}{' and more' if len(there) > 3 else ''}" if there else "it is empty"
    raise BadData(f"{root} has neither a folder {' or '.join(SPLITS[split])} nor files {SPLITS[split][0]}-*: {what}")


def _folders(classes: list[Path], most: int) -> Pictures:
    found = Pictures("folders", len(classes))
    odd = ""
    for label, folder in enumerate(classes):
        if len(found) >= most:
            break
        before = len(found)
        for entry in sorted(os.scandir(folder), key=lambda one: one.name):
            if entry.name.lower().endswith(PICTURES):
                found.files.append(entry.path)
                found.add(len(found.files) - 1, 0, 0, label)
            elif not entry.name.startswith("."):
                odd = odd or entry.path
        if len(found) == before:
            raise BadData(f"{folder} has no pictures ({', '.join(PICTURES)})" + (f"; it has {odd}" if odd else ""))
    return found


def _files(files: list[Path], empty: str, most: int) -> Pictures:
    if not files:
        raise BadData(empty)
    first = files[0]
    for kind, fits, reader in (("tar", _is_tar, _tar), ("tfrecord", _is_records, _records)):
        if fits(first):
            others = [file for file in files if not fits(file)]
            if others:
                raise BadData(f"{others[0]} is no {kind} file as {first.name} beside it is")
            return reader(files, most)
    raise BadData(
        f"{first} is of no format that is read here: folders of classes with pictures ({', '.join(PICTURES)}), "
        "tar shards (*.tar, not compressed) or TFRecord (*-of-*, *.tfrecord)"
    )


def _is_tar(file: Path) -> bool:
    return file.suffix == ".tar"


def _is_records(file: Path) -> bool:
    return SHARD.search(file.name) is not None


def _tar(files: list[Path], most: int) -> Pictures:
    found = Pictures("tar", 0)
    for number, path in enumerate(files):
        if len(found) >= most:
            break
        found.files.append(str(path))
        for key, (offset, size), label in _members(path):
            if label is None:
                raise BadData(f"{path}: {key} has no label; {key.rpartition('.')[0]}.cls has to be beside it")
            found.add(number, offset, size, label)
    found.classes = max(found.label, default=-1) + 1
    return found


def _members(path: Path) -> Iterator[tuple[str, tuple[int, int], int | None]]:
    """Name, place and label of each picture of a shard."""
    pictures: dict[str, tuple[str, tuple[int, int]]] = {}
    labels: dict[str, int] = {}
    try:
        with tarfile.open(path, "r:") as shard:
            for member in shard:
                key, _, ending = member.name.rpartition(".")
                if not member.isfile():
                    continue
                if f".{ending.lower()}" in PICTURES:
                    pictures[key] = (member.name, (member.offset_data, member.size))
                elif ending == "cls":
                    file = shard.extractfile(member)
                    text = file.read(32).decode("ascii", "replace").strip() if file else ""
                    if not (text.isascii() and text.isdigit()):
                        raise BadData(f"{path}: {member.name} has {text[:20]!r} and no whole number")
                    labels[key] = int(text)
    except tarfile.TarError as fault:
        raise BadData(f"{path} is no tar file that can be read: {fault}") from None
    for key, (name, place) in pictures.items():
        yield name, place, labels.get(key)


def _records(files: list[Path], most: int) -> Pictures:
    found = Pictures("tfrecord", 0)
    for number, path in enumerate(files):
        if len(found) >= most:
            break
        found.files.append(str(path))
        for offset, size in spans(str(path)):
            found.add(number, offset, size, IN_RECORD)
    return found


def _try_first(found: Pictures, labels: int) -> None:
    """BadData where the first picture is none, or its label is none of the network's."""
    data, label = found.read(0)
    if data[:2] not in MAGIC:
        raise BadData(f"{found.where(0)} is no picture: neither {', '.join(MAGIC.values())}")
    if MAGIC[data[:2]] != "PPM":
        try:
            importlib.import_module("PIL")
        except ImportError:
            kind = MAGIC[data[:2]]
            raise BadData(f"{found.where(0)} is {kind}, which takes Pillow, and this Python has none") from None
    if not 0 <= label < labels:
        raise BadData(f"{found.where(0)} has label {label}, the network distinguishes 0 to {labels - 1}")


def pixels(data: bytes) -> tuple[int, int, bytes]:
    """Width, height, and the colours red, green, blue of each pixel, a byte each. BadData where it is no picture."""
    if data[:2] == b"P6":
        head = re.match(rb"P6\s+(\d+)\s+(\d+)\s+255\s", data)
        if head is None or len(data) - head.end() != int(head[1]) * int(head[2]) * 3:
            raise BadData("the PPM's head and size do not fit")
        return int(head[1]), int(head[2]), data[head.end() :]
    image = importlib.import_module("PIL.Image")
    try:
        with image.open(io.BytesIO(data)) as picture:
            plain = picture.convert("RGB")
            return plain.width, plain.height, plain.tobytes()
    except (OSError, ValueError, SyntaxError) as fault:
        raise BadData(f"it cannot be decoded: {fault}") from None
