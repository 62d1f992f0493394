"""Real pictures for the short training program: read, decoded, cut and mirrored by processes beside each rank while it
trains, and put on the device. They are read and cut as those of the long training (train_data.py, train_feed.py).

They are a folder's, in any format of the long training, or of the program's own making: where Pillow is there JPEGs of
500 x 375 pixels, about as large as ImageNet's; else PPM of half the sides. Its own lie in one open file without a name,
so that nothing stays, and in the page cache: then the processors are measured, and not the storage.

Read on the controller, too, so nothing imports torch.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.util
import io
import itertools
import os
import queue
import random
import signal
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from validation.base.counting import number_of
from validation.probes.train_data import BadData, Pictures, look, order, storage_of
from validation.probes.train_feed import DEVIATION, MEAN, Cut
from validation.probes.train_networks import Network
from validation.probes.train_world import PR_SET_PDEATHSIG

OWN_CLASSES = 8  # colours of the program's own pictures
MADE = 256  # pictures of the program's own, of each rank
MOST = 50_000  # pictures of a folder that are used: of ImageNet no job would find all of them in time
WIDTH, HEIGHT, QUALITY = 500, 375, 97  # pixels of ImageNet's mean
WORKERS = 16  # of each rank, at most: what a GPU needs by the published reference design
AHEAD = 2  # batches that wait on the device's side


class FewProcessors(Exception):
    """A rank cannot have as many processors as were asked for, in words."""


def share_of(cores: int, local: int, ranks: int, allowed: list[int]) -> list[int]:
    """The processors of a rank: the first `cores` of its equal share, all of the share for 0.

    `local`: number of the rank on its node, of `ranks`. FewProcessors where the share is smaller.
    """
    each = len(allowed) // max(1, ranks)
    mine = allowed[local * each : (local + 1) * each] or [allowed[local % len(allowed)]]
    if cores > len(mine):
        raise FewProcessors(
            f"too few processors: {len(allowed)} for {number_of(ranks, 'rank')} of a node, {cores} for each "
            "were asked for"
        )
    return mine[:cores] if cores else mine


def place() -> tuple[int, int]:
    """Number of this rank on its node, and of how many, by the word of its launcher: mpirun or torchrun."""
    local, ranks = (
        int(next((os.environ[name] for name in names if name in os.environ), default))
        for names, default in (
            (("OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK"), "0"),
            (("OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"), "1"),
        )
    )
    return local, ranks


def take_cores(cores: int) -> int:
    """Keep this rank, and all that it starts, on its processors; how many they are. Before any thread of it starts."""
    local, ranks = place()
    mine = share_of(cores, local, ranks, sorted(os.sched_getaffinity(0)))
    if cores:
        os.sched_setaffinity(0, mine)
    return len(mine)


def make_pictures(into: Any, classes: int) -> Pictures:
    """Pictures that are written one after another into an open file, of each class a colour of its own under noise.

    The file has no name, so only this process and its forks can read them.
    """
    jpeg = importlib.util.find_spec("PIL") is not None
    coarse = (WIDTH // 4, HEIGHT // 4) if jpeg else (WIDTH // 2, HEIGHT // 2)
    dice = random.Random(7)  # noqa: S311 - pixels, no secret
    found = Pictures("open", classes)
    found.opened(into.fileno(), "a picture of the program's own")
    for number in range(MADE):
        label, pixels = number % classes, bytearray(3 * coarse[0] * coarse[1])
        for bit in range(3):
            colour = 40 + 170 * (label >> bit & 1)
            noise = bytes(min(255, max(0, colour + value % 81 - 40)) for value in range(256))
            plane = dice.getrandbits(8 * coarse[0] * coarse[1]).to_bytes(coarse[0] * coarse[1], "little")
            pixels[bit::3] = plane.translate(noise)
        data = _jpeg(coarse, bytes(pixels)) if jpeg else b"P6\n%d %d\n255\n" % coarse + bytes(pixels)
        found.add(0, into.tell(), len(data), label)
        into.write(data)
    into.flush()
    return found


def _jpeg(size: tuple[int, int], pixels: bytes) -> bytes:
    image: Any = importlib.import_module("PIL.Image")
    made = io.BytesIO()
    whole = image.frombytes("RGB", size, pixels).resize((WIDTH, HEIGHT), resample=2)
    whole.save(made, "JPEG", quality=QUALITY)
    return made.getvalue()


def endless(count: int, batch: int, seed: int) -> Iterator[list[tuple[int, int]]]:
    """Batches of (epoch, number) of `count` pictures in an order of its own, one epoch after another."""
    numbers = ((epoch, number) for epoch in itertools.count() for number in order(seed, epoch, count))
    while True:
        yield list(itertools.islice(numbers, batch))


def end_with_rank(_: int) -> None:
    """A process that decodes ends with its rank, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Feed:
    """Batches of real pictures. Its processes start at once, before MPI and CUDA, neither of which bears a fork."""

    def __init__(self, torch: Any, data: str, network: Network, batch: int, cores: int) -> None:
        """`cores`: processors that this rank has. BadData where there is nothing to read."""
        self.torch, (local, _) = torch, place()
        if data:
            pictures = look(data, "train", network.classes, MOST)
            where = f"{len(pictures)} pictures of {data} ({pictures.kind}) on {storage_of(data)}"
        else:
            self.opened = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the job runs, and without a name
            pictures = make_pictures(self.opened, min(network.classes, OWN_CLASSES))
            kind = "JPEG" if pictures.read(0)[0][:2] == b"\xff\xd8" else "PPM"
            size = sum(pictures.size) / len(pictures) / 1e3
            where = f"{len(pictures)} {kind} pictures of its own, in the page cache, {size:.0f} kB each"
        self.source, self.workers = where, max(1, min(WORKERS, cores))
        loaders: Any = importlib.import_module("torch.utils.data")
        loader = loaders.DataLoader(
            Cut(pictures, network.side, network.classes, local, learning=True),
            batch_sampler=endless(len(pictures), batch, local), num_workers=self.workers,
            multiprocessing_context="fork", worker_init_fn=end_with_rank,
        )  # fmt: skip
        self.batches = iter(loader)
        self.ready: queue.Queue[Any] = queue.Queue(AHEAD)

    def start(self, device: Any, like: Any) -> None:
        """From here on batches are put where the device can take them. `like`: images as the network wants them."""
        self.device, self.like = device, like
        self.mean, self.deviation = (
            255 * self.torch.tensor(of, dtype=like.dtype, device=device).view(1, 3, 1, 1) for of in (MEAN, DEVIATION)
        )
        threading.Thread(target=self._bring, daemon=True).start()

    def _bring(self) -> None:
        try:
            for images, labels in self.batches:
                fixed = (images.pin_memory(), labels.pin_memory()) if self.device.type == "cuda" else (images, labels)
                self.ready.put(fixed)
        except BaseException as fault:
            self.ready.put(fault)

    def next(self) -> tuple[Any, Any]:
        """Images and classes of the next batch, on the device."""
        found = self.ready.get()
        if isinstance(found, BaseException):
            raise RuntimeError(f"a picture could not be read: {found}") from found
        images, labels = (part.to(self.device, non_blocking=True) for part in found)
        images = (images.to(self.like.dtype) - self.mean) / self.deviation
        if self.like.is_contiguous(memory_format=self.torch.channels_last) and not self.like.is_contiguous():
            images = images.contiguous(memory_format=self.torch.channels_last)
        return images, labels


def feed_of(torch: Any, args: argparse.Namespace, network: Network) -> tuple[Feed | None, str]:
    """The pictures of this rank, None for synthetic ones, and why there are none; its processors are taken.

    Before anything is started that does not bear a fork.
    """
    try:
        cores = take_cores(args.cores)
        if args.images == "real":
            return Feed(torch, args.data, network, args.batch, cores), ""
    except (BadData, FewProcessors) as fault:
        return None, str(fault)
    return None, ""
