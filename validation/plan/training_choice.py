"""Which networks a training measures, at which batches, precisions and numbers of GPUs: asked for, or by default."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from validation.model import Node
from validation.plan.offered import FRAMEWORKS, TENSORFLOW, TORCH
from validation.plan.request import PlanError
from validation.probes.train_decoders import SHORT
from validation.probes.train_networks import IN_TENSORFLOW, NETWORKS, PRECISIONS, SMALL

OPTIONS = {
    "models": f"networks of a training: {', '.join(NETWORKS)}",
    "batches": "images per rank and step, several",
    "gpus": "numbers of ranks, one for each GPU",
    "precisions": f"number formats of a training: {', '.join(PRECISIONS)}",
    "framework": f"what the short test trains with: {', '.join(FRAMEWORKS)}",
    "tf_cnn_benchmarks": "where the operator's tf_cnn_benchmarks.py is in the training container",
    "images": "a folder of pictures on the nodes, in the training container",
    "decoders": "transformer decoders of a training: tiny, 1b, 8b",
}
"""What can be asked for, as words with commas between them."""
SMALL_BATCH = 16
BATCH = 128  # Dell whitepaper 2019, tables 5 and 6
ON_GPUS, ON_PROCESSORS = ("resnet50", "fp16"), (SMALL, "fp32")
MOST_BYTES = 288e9  # no GPU has more memory: B300, data sheet
T = TypeVar("T")


@dataclass(frozen=True)
class Config:
    """What a job trains."""

    model: str
    batch: int
    precision: str
    framework: str = TORCH

    @property
    def prefix(self) -> str:
        """What the names of its measurements begin with; none for the small network of older releases."""
        if self.framework != TORCH:
            return f"{self.framework}-{self.model}-b{self.batch}-{self.precision}."
        plain = self.model == SMALL and self.precision == "fp32"
        return "" if plain and self.batch == SMALL_BATCH else f"{self.model}-b{self.batch}-{self.precision}."


@dataclass(frozen=True)
class Choice:
    """What was asked for; empty: the default."""

    models: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ()
    framework: str = TORCH

    def configs(self, servers: Sequence[Node]) -> tuple[Config, ...]:
        """Every combination, for these GPU servers. PlanError for a batch that fits on none of their GPUs, and for what
        TensorFlow does not train.
        """
        with_gpus = on_gpus(servers)
        model, precision = ON_GPUS if with_gpus else ON_PROCESSORS
        found = [
            Config(name, batch or (SMALL_BATCH if NETWORKS[name].library == "own" else BATCH), kind, self.framework)
            for name in self.models or (model,)
            for kind in self.precisions or (precision,)
            for batch in self.batches or (0,)
        ]
        if self.framework == TENSORFLOW:
            _in_tensorflow(found, with_gpus)
        for config in found:
            if not with_gpus and config.precision in ("tf32", "fp16"):
                raise PlanError(
                    f"--dtype {config.precision}: processors do not train in it, and the inventory declares no GPUs"
                )
            _fits(config, servers)
        return tuple(dict.fromkeys(found))


def on_gpus(servers: Sequence[Node]) -> bool:
    """True where the inventory declares GPUs of each server and all of them are real machines."""
    return all(not n.virtual and (n.bom.gpu_count or 0) > 0 for n in servers)


def read(options: Mapping[str, str]) -> Choice:
    """What the words of options ask for. PlanError names the word that is wrong, and the nearest that is not."""
    return Choice(
        models=_each(options.get("models", ""), "--models", lambda word: _known(word, tuple(NETWORKS), "network")),
        batches=_each(options.get("batches", ""), "--batch", lambda word: _whole(word, "--batch")),
        gpus=_each(options.get("gpus", ""), "--gpus", lambda word: _whole(word, "--gpus")),
        precisions=_each(
            options.get("precisions", ""), "--dtype", lambda word: _known(word, PRECISIONS, "number format")
        ),
        framework=_known(options.get("framework", TORCH), FRAMEWORKS, "framework"),
    )


def decoders(text: str) -> tuple[str, ...]:
    """Names of the decoders that were asked for. PlanError names the word that is wrong."""
    return tuple(SHORT[word] for word in _each(text, "--decoders", lambda word: _known(word, tuple(SHORT), "decoder")))


def places(choice: Choice, servers: Sequence[Node], each: int) -> dict[int, int]:
    """Numbers of ranks -> how many servers they are on, which are taken whole from the second on.

    `each`: ranks of a server. PlanError for a number that the servers do not have, or that takes parts of several.
    """
    found: dict[int, int] = {}
    most = each * len(servers)
    for count in choice.gpus:
        if count > most:
            of = f"{len(servers)} server{'' if len(servers) == 1 else 's'} with {each} each"
            raise PlanError(f"--gpus {count}: there are {most}, {of}")
        if count > each and count % each:
            whole = ", ".join(str(each * n) for n in range(1, len(servers) + 1))
            raise PlanError(f"--gpus {count}: several servers are taken whole: {whole}, or less than {each}")
        found[count] = max(1, count // each)
    return found


def least_bytes(config: Config) -> float:
    """Memory that training takes at the least: images, what layers keep for the way back, parameters three times."""
    network = NETWORKS[config.model]
    size = 2 if config.precision in ("bf16", "fp16") else 4
    images = 3 * network.side**2 * 4
    return config.batch * (images + size * network.kept) + 12 * network.parameters


def _in_tensorflow(configs: Sequence[Config], with_gpus: bool) -> None:
    """PlanError for what the image's TensorFlow, which is without CUDA, does not train."""
    if with_gpus:
        raise PlanError(
            "--framework tensorflow: it trains on processors, and the inventory declares GPUs; on those TensorFlow "
            "trains by --tf-cnn-benchmarks, in an image of the site's own"
        )
    for config in configs:
        if config.model not in IN_TENSORFLOW:
            raise PlanError(
                f"--framework tensorflow: {config.model} is none of its networks; there are: {', '.join(IN_TENSORFLOW)}"
            )


def _fits(config: Config, servers: Sequence[Node]) -> None:
    need = least_bytes(config)
    sizes = [
        (float(found[1]) * 1.074e9, n.bom.gpu_model or "")
        for n in servers
        if (found := re.search(r"(\d+) ?GB", n.bom.gpu_model or ""))
    ]
    most, name = min(sizes, default=(MOST_BYTES, None))
    if need > most:
        where = "no GPU has that" if name is None else f"a {name} has {most / 1e9:.0f} GB"
        raise PlanError(
            f"--batch {config.batch}: {config.model} in {config.precision} takes at least {need / 1e9:.0f} GB, "
            f"and {where}"
        )


def _each(text: str, option: str, read_one: Callable[[str], T]) -> tuple[T, ...]:
    words = [word.strip() for word in text.split(",")] if text else []
    if any(not word for word in words):
        raise PlanError(f"{option} {text!r}: words with one comma between them are wanted")
    return tuple(dict.fromkeys(read_one(word) for word in words))


def _known(word: str, known: Sequence[str], what: str) -> str:
    if word in known:
        return word
    near = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.4)
    raise PlanError(
        f"unknown {what} {word!r}; " + (f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}")
    )


def _whole(word: str, option: str) -> int:
    if not word.isascii() or not word.isdigit() or not 0 < int(word) < 10**6:
        raise PlanError(f"{option} {word}: no whole number of at least 1")
    return int(word)
