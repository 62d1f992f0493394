"""Real images for the training program: files that are read, decoded, cut, mirrored and put on the device, by processes
beside each rank while it trains.

Files are a folder's JPEGs, by name of their folder in classes, or of the program's own making: where Pillow is there,
JPEGs of 500 x 375 pixels, about as large as ImageNet's; else compressed pixels, little more than what is trained on.
Its own lie in one open file without a name, so that nothing stays, and in the page cache: then the processors are
measured, and not the storage.

Read on the controller, too, so nothing imports torch.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.util
import io
import os
import queue
import random
import signal
import tempfile
import threading
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from validation.probes.train_networks import Network

PR_SET_PDEATHSIG = 1
OWN_CLASSES = 8  # colours of the program's own images
MADE = 256  # images of the program's own, of each rank
MOST = 50_000  # files of a folder that are used
WIDTH, HEIGHT, QUALITY = 500, 375, 97  # pixels of ImageNet's mean
BORDER = 8  # pixels that are cut off compressed ones
WORKERS = 16  # of each rank, at most: what a GPU needs by the published reference design
AHEAD = 2  # batches that wait on the device's side
MEAN, DEVIATION = 118.0, 60.0  # of pixels of 0 to 255: about ImageNet's
SUFFIXES = (".jpg", ".jpeg")


class NoImages(Exception):
    """Files that cannot be trained on, in words; no fault of the program."""


def share_of(cores: int, local: int, ranks: int, allowed: list[int]) -> list[int]:
    """The processors of a rank: the first `cores` of its equal share, all of the share for 0.

    `local`: number of the rank on its node, of `ranks`. NoImages where the share is smaller.
    """
    each = len(allowed) // max(1, ranks)
    mine = allowed[local * each : (local + 1) * each] or [allowed[local % len(allowed)]]
    if cores > len(mine):
        raise NoImages(
            f"too few processors: {len(allowed)} for {ranks} ranks of a node, {cores} for each were asked for"
        )
    return mine[:cores] if cores else mine


def take_cores(cores: int) -> int:
    """Keep this rank, and all that it starts, on its processors; how many they are. Before any thread of it starts.

    The launcher's word for rank and ranks of this node is taken: mpirun's, or torchrun's.
    """
    local, ranks = (
        int(next((os.environ[name] for name in names if name in os.environ), default))
        for names, default in (
            (("OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK"), "0"),
            (("OMPI_COMM_WORLD_LOCAL_SIZE", "LOCAL_WORLD_SIZE"), "1"),
        )
    )
    mine = share_of(cores, local, ranks, sorted(os.sched_getaffinity(0)))
    if cores:
        os.sched_setaffinity(0, mine)
    return len(mine)


class Piece(NamedTuple):
    """Where an image lies: a file, or a part of an open one; and its class."""

    path: str  # "": of the open file
    at: int
    size: int
    jpeg: bool
    label: int


def make_pieces(into: Any, side: int, classes: int) -> list[Piece]:
    """Images that are written one after another into an open file, of each class a colour of its own under noise."""
    jpeg = importlib.util.find_spec("PIL") is not None
    wide, high = (WIDTH // 4, HEIGHT // 4) if jpeg else (side + BORDER, side + BORDER)
    dice = random.Random(7)  # noqa: S311 - pixels, no secret
    found = []
    for number in range(MADE):
        label = number % classes
        planes = []
        for bit in range(3):
            colour = 40 + 170 * (label >> bit & 1)
            noise = bytes(min(255, max(0, colour + value % 81 - 40)) for value in range(256))
            planes.append(dice.getrandbits(8 * wide * high).to_bytes(wide * high, "little").translate(noise))
        if jpeg:
            image: Any = importlib.import_module("PIL.Image")
            rows = bytearray(3 * wide * high)
            for bit, plane in enumerate(planes):
                rows[bit::3] = plane
            made = io.BytesIO()
            full = image.frombytes("RGB", (wide, high), bytes(rows)).resize((WIDTH, HEIGHT), resample=2)
            full.save(made, "JPEG", quality=QUALITY)
            data = made.getvalue()
        else:
            data = zlib.compress(b"".join(planes), 1)
        found.append(Piece("", into.tell(), len(data), jpeg, label))
        into.write(data)
    into.flush()
    return found


def find_pieces(folder: Path) -> list[Piece]:
    """A folder's JPEGs, of each folder in it a class; NoImages names what is wrong."""
    if not folder.is_dir():
        raise NoImages(f"no folder {folder} on this node")
    found: list[Path] = []
    other = ""
    for root, folders, files in os.walk(folder):
        folders.sort()
        found += [Path(root) / name for name in sorted(files) if name.lower().endswith(SUFFIXES)]
        other = other or next((name for name in sorted(files) if not name.lower().endswith(SUFFIXES)), "")
        if len(found) >= MOST:
            break
    if not found:
        raise NoImages(f"no JPEG files in {folder}" + (f"; the first file is {other}" if other else ": it is empty"))
    if importlib.util.find_spec("PIL") is None:
        raise NoImages("JPEG files are decoded by Pillow, which is not here")
    names = sorted({path.parent for path in found[:MOST]})
    classes = {name: at for at, name in enumerate(names)}
    return [Piece(str(path), 0, path.stat().st_size, True, classes[path.parent]) for path in found[:MOST]]


class Files:
    """What a loader takes images from: (pixels as bytes of 3 x side x side, class)."""

    def __init__(self, pieces: list[Piece], opened: Any, side: int, classes: int, torch: Any) -> None:
        """`opened`: the file that those without a path lie in; `torch`: this process's."""
        self.pieces, self.opened, self.side, self.classes, self.torch = pieces, opened, side, classes, torch

    def __len__(self) -> int:
        """As many as are asked for: a file comes round again and again."""
        return 10**9

    def __getitem__(self, number: int) -> Any:
        """One image, cut out and mirrored at random."""
        piece = self.pieces[(number * 7919) % len(self.pieces)]  # a prime: neighbours in a batch are none on the disk
        dice = random.Random(number)  # noqa: S311 - where an image is cut, no secret
        own = self.opened.fileno() if self.opened else -1
        data = Path(piece.path).read_bytes() if piece.path else os.pread(own, piece.size, piece.at)
        pixels = self._jpeg(data, dice) if piece.jpeg else self._plain(data, dice)
        return (pixels.flip(2) if dice.random() < 0.5 else pixels).contiguous(), piece.label % self.classes

    def _jpeg(self, data: bytes, dice: random.Random) -> Any:
        image: Any = importlib.import_module("PIL.Image")
        with image.open(io.BytesIO(data)) as opened:
            whole = opened.convert("RGB")
        wide, high = whole.size
        share = dice.uniform(0.5, 1.0)  # of each side
        box_wide, box_high = max(1, int(wide * share)), max(1, int(high * share))
        left, top = dice.randint(0, wide - box_wide), dice.randint(0, high - box_high)
        box = (left, top, left + box_wide, top + box_high)
        cut = whole.resize((self.side, self.side), resample=2, box=box)
        flat = self.torch.frombuffer(bytearray(cut.tobytes()), dtype=self.torch.uint8)
        return flat.view(self.side, self.side, 3).permute(2, 0, 1)

    def _plain(self, data: bytes, dice: random.Random) -> Any:
        wide = self.side + BORDER
        flat = self.torch.frombuffer(bytearray(zlib.decompress(data)), dtype=self.torch.uint8)
        left, top = dice.randint(0, BORDER), dice.randint(0, BORDER)
        return flat.view(3, wide, wide)[:, top : top + self.side, left : left + self.side]


def end_with_rank(_: int) -> None:
    """A process that decodes ends with its rank, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Feed:
    """Batches of real images. Its processes start at once, before MPI and CUDA, neither of which bears a fork."""

    def __init__(self, torch: Any, data: str, side: int, classes: int, batch: int, cores: int) -> None:
        """`cores`: processors that this rank has. NoImages where there is nothing to read."""
        self.torch, opened = torch, None
        if data:
            pieces = find_pieces(Path(data))
            where = f"{len(pieces)} JPEG files of {data}"
        else:
            opened = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the job runs, and without a name
            pieces = make_pieces(opened, side, min(classes, OWN_CLASSES))
            where = f"{len(pieces)} {'JPEG' if pieces[0].jpeg else 'compressed'} images of its own, in the page cache"
        size = sum(piece.size for piece in pieces) / len(pieces)
        self.source = f"{where}, {size / 1e3:.0f} kB each"
        self.workers = max(1, min(WORKERS, cores))
        loaders: Any = importlib.import_module("torch.utils.data")
        loader = loaders.DataLoader(
            Files(pieces, opened, side, classes, torch), batch_size=batch, num_workers=self.workers,
            multiprocessing_context="fork", worker_init_fn=end_with_rank,
        )  # fmt: skip
        self.batches = iter(loader)
        self.ready: queue.Queue[Any] = queue.Queue(AHEAD)

    def start(self, device: Any, like: Any) -> None:
        """From here on batches are put where the device can take them. `like`: images as the network wants them."""
        self.device, self.like = device, like
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
            raise RuntimeError(f"an image could not be read: {found}") from found
        images, labels = (part.to(self.device, non_blocking=True) for part in found)
        images = (images.to(self.like.dtype) - MEAN) / DEVIATION
        if self.like.is_contiguous(memory_format=self.torch.channels_last) and not self.like.is_contiguous():
            images = images.contiguous(memory_format=self.torch.channels_last)
        return images, labels


def feed_of(torch: Any, args: argparse.Namespace, network: Network) -> tuple[Feed | None, str]:
    """The images of this rank, None for synthetic ones, and why there are none of the files; its processors are taken.

    Before anything is started that does not bear a fork.
    """
    try:
        cores = take_cores(args.cores)
        if args.images == "real":
            return Feed(torch, args.data, network.side, network.classes, args.batch, cores), ""
    except NoImages as fault:
        return None, str(fault)
    return None, ""
