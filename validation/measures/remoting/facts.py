"""Facts of remoting (kinds remoting-copy, remoting-isolate, remoting-fraction)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import field_validator, model_validator

from validation.base.counting import number_of
from validation.model.base import Model
from validation.model.facts import Count, Facts, Name, Positive, once
from validation.probes.remoting_program import FRAMEWORKS

#: What reports call the networks that torch_load.py and tf_load.py train.
TITLES = {
    "alexnet": "AlexNet",
    "googlenet": "GoogLeNet",
    "inception3": "Inception-v3",
    "inception4": "Inception-v4",
    "resnet50": "ResNet-50",
    "resnet101": "ResNet-101",
    "vgg16": "VGG-16",
    "vgg19": "VGG-19",
}
#: Of these the engine torch's results on a real GPU have the native bits: nothing normalises by batch, for which a
#: leased GPU has other kernels. TensorFlow's kernels on a GPU may add in another order each time.
SAME_BITS = ("", "alexnet", "vgg16", "vgg19")


class Remoting(Facts):
    """Through which engine, and whether the GPUs were emulated."""

    emulated: bool
    engine: str
    engine_release: str


class Trained(Remoting):
    """What was trained: a network of the documents by the engine's framework, the side of its images in pixels and by
    how much all channels were divided; "" the small network of elastic-ai-train.
    """

    network: str = ""
    side: Count = 0
    thin: Count = 1

    @property
    def framework(self) -> str:
        """`PyTorch`; "" of elastic-ai-train."""
        return FRAMEWORKS[self.engine].title if self.network and self.engine in FRAMEWORKS else ""

    @property
    def title(self) -> str:
        """`ResNet-50 (images of 64 x 64, 1/8 of the channels)`."""
        if not self.network:
            return "the small network of elastic-ai-train"
        thin = f", 1/{self.thin} of the channels" if self.thin > 1 else ""
        return f"{TITLES.get(self.network, self.network)} (images of {self.side} x {self.side}{thin})"


class CopyDevice(Model):
    """A GPU of the lease; `server` "" where the engine does not say."""

    name: str
    uuid: str
    server: str


class CopyPair(Model):
    """Medians of the copies from one end to the other: a device's number, None for the client's memory."""

    source: Count | None
    target: Count | None
    gb_s: Positive
    us: Positive


class CopyFacts(Remoting):
    """Copies between a client's memory and all GPUs of a lease, and between these."""

    type: Literal["copies"] = "copies"
    client: str
    servers: tuple[str, ...]
    #: What carried the bytes, as the servers say; verbs only where the client's RDMA port has counted them too.
    transport: Literal["", "tcp", "verbs"] = ""
    devices: tuple[CopyDevice, ...]
    matrix: tuple[CopyPair, ...]

    @property
    def holes(self) -> list[tuple[int | None, int | None]]:
        """Ordered pairs without a figure."""
        ends = (None, *range(len(self.devices)))
        there = {(pair.source, pair.target) for pair in self.matrix}
        return [(a, b) for a in ends for b in ends if (a, b) != (None, None) and (a, b) not in there]

    @field_validator("matrix")
    @classmethod
    def _pairs_once(cls, pairs: tuple[CopyPair, ...]) -> tuple[CopyPair, ...]:
        return once(pairs, "source", "target")


GOT_THROUGH: dict[str, Callable[[Any], bool]] = {
    "cuda": lambda code: code == 0,
    "strange": lambda devices: devices > 0,
    "status": lambda status: status == 0,
    "connection": lambda how: how in ("kept", "answered"),
    "native": lambda how: how == "opened",
    "unharmed": lambda fine: not fine,
}
"""What can show how an attempt ended (a field of `Attempt`) -> whether that means that it got through."""
ATTEMPTS = {
    "memory beyond the part": "cuda",
    "memory beyond the part in two programs": "cuda",
    "another's GPU with CUDA_VISIBLE_DEVICES=''": "strange",
    "another's GPU with CUDA_VISIBLE_DEVICES='0,1,2,3'": "strange",
    "another's GPU with CUDA_VISIBLE_DEVICES='all'": "strange",
    "no token": "cuda",
    "a wrong token": "cuda",
    "another user of the same machine": "status",
    "the GPU by a step in the lease's job": "native",
    "the GPU by a native job": "native",
    "harm to a neighbour by a crash": "unharmed",
    "the server after the lease's end": "connection",
    "the token after the lease's end": "cuda",
    "the lease after its end": "status",
}
"""Attempts that are made whatever the site, in their order -> what shows how each ended."""
_BEFORE_THE_CRASH = list(ATTEMPTS).index("harm to a neighbour by a crash")


def asked_attempts(elsewhere: object) -> dict[str, str]:
    """The attempts that are asked for, in their order; `elsewhere`: the machine without a lease, where there is one."""
    asked = list(ATTEMPTS.items())
    if elsewhere:
        asked.insert(_BEFORE_THE_CRASH, (f"a connection from {elsewhere}", "connection"))
    return dict(asked)


NOT_PROMISED_BY_ALL = ("memory beyond the part in two programs", "no token", "a wrong token")
"""Attempts that an engine may leave possible, where its adapter says so."""


class Attempt(Model):
    """An attempt on isolation: whether it was a breach, how it ended in words, and one thing that shows it.

    promised: whether the engine promises to refuse it; what it does not promise is told, and is no breach.

    `cuda`: CUresult of the call that was to be refused, 0 where it was made; `strange`: devices seen that are not the
    lease's; `status`: exit status of `toolkit run`, which refuses with 2 or 75; `connection`: how a plain one ended;
    `native`: whether a program on the server itself opened the GPU, could not, or was not started by Slurm; `unharmed`:
    whether the neighbour worked on.
    """

    name: Name
    breach: bool
    words: Name
    promised: bool = True
    cuda: Count | None = None
    strange: Count | None = None
    status: Literal[0, 2, 75] | None = None
    connection: Literal["kept", "answered", "closed", "dropped", "refused"] | None = None
    native: Literal["opened", "closed", "refused"] | None = None
    unharmed: bool | None = None

    @property
    def shown_by(self) -> str:
        """Which field shows how it ended."""
        return next(key for key in GOT_THROUGH if getattr(self, key) is not None)

    @property
    def got_through(self) -> bool:
        """Whether it was possible."""
        return GOT_THROUGH[self.shown_by](getattr(self, self.shown_by))

    @model_validator(mode="after")
    def _shown(self) -> Attempt:
        shown = {key: value for key in GOT_THROUGH if (value := getattr(self, key)) is not None}
        if len(shown) != 1:
            raise ValueError(
                f"{self.name}: {number_of(len(shown), 'thing')} show how it ended, exactly one is expected"
            )
        if (self.got_through and self.promised) != self.breach:
            raise ValueError(f"{self.name}: breach {self.breach} and {shown} contradict each other")
        if not self.promised and self.name not in NOT_PROMISED_BY_ALL:
            raise ValueError(f"{self.name}: every engine promises to refuse this")
        return self


class IsolationFacts(Remoting):
    """All attempts of a tenant on a GPU server, in their order."""

    type: Literal["isolation"] = "isolation"
    server: str
    attempts: tuple[Attempt, ...]

    @property
    def breaches(self) -> list[str]:
        """Names of the attempts that got through against a promise."""
        return [attempt.name for attempt in self.attempts if attempt.breach]

    @property
    def unpromised(self) -> list[str]:
        """Names of those that got through and that the engine does not promise to refuse."""
        return [attempt.name for attempt in self.attempts if attempt.got_through and not attempt.promised]

    def fault(self, elsewhere: object) -> str:
        """Why these are not the attempts that were asked for, each once, in their order; "" where they are."""
        asked = asked_attempts(elsewhere)
        made = {attempt.name: attempt.shown_by for attempt in self.attempts}
        if missing := [name for name in asked if name not in made]:
            return f"not attempted: {', '.join(missing)}"
        if more := [name for name in made if name not in asked]:
            return f"attempted, but not asked for: {', '.join(more)}"
        if odd := [name for name in asked if made[name] != asked[name]]:
            return f"shown by something else than asked for: {', '.join(odd)}"
        return "" if list(made) == list(asked) else f"not in the order asked for: {', '.join(made)}"

    @field_validator("attempts")
    @classmethod
    def _attempts_once(cls, attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
        return once(attempts, "name")


class GpuPart(Model):
    """A part of a GPU as it was asked for, and the memory that its tenant had."""

    part: Name
    memory_mib: Positive


class FractionFacts(Remoting):
    """A GPU cut into parts; `beyond`: what became of one part too many.

    reserved_mib: what the driver keeps of memory_mib; context_mib: what each tenant's context takes, as measured on the
    server.
    """

    type: Literal["fractions"] = "fractions"
    server: str
    parts: tuple[GpuPart, ...]
    memory_mib: Positive
    reserved_mib: Count
    context_mib: Positive
    beyond: Literal["waiting", "pending", "refused"]
