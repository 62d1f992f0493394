"""Parts of a GPU: what a user types, and the shards, memory and SMs that it comes to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from toolkit.lease import SHARDS_PER_GPU, LeaseError
from validation.base.counting import number_of

MIB = 1 << 20
_FORM = re.compile(r"(\d{1,6})/(\d{1,6})|(\d{0,6}\.?\d{1,9}|\d{1,6}\.)")


@dataclass(frozen=True)
class GpuPart:
    """A part of each GPU: `shards` of `of`. `note` says what was rounded, "" when nothing was."""

    shards: int
    of: int = SHARDS_PER_GPU
    note: str = ""

    @property
    def whole(self) -> bool:
        """Whether it is a whole GPU, which is scheduled as such."""
        return self.shards == self.of

    @property
    def text(self) -> str:
        """As a person writes it: 1, 1/2, 5/20 as 1/4."""
        return share_text(self.shards, self.of)


def share_text(shards: int, of: int) -> str:
    """A share in its shortest form: 0, 1, 1/7, 3/4; 0.329 where the fraction would be unreadable."""
    share = Fraction(shards, of)
    if share.denominator == 1:
        return str(share.numerator)
    return str(share) if share.denominator <= 20 else f"{float(share):.3g}"


def parse_part(text: str, of: int = SHARDS_PER_GPU) -> GpuPart:
    """The part that `-p` names. LeaseError when it is no number, not in (0, 1], or smaller than a shard."""
    match = _FORM.fullmatch(text.strip())
    if not match:
        raise LeaseError(f"-p {text}: not a number; give a part such as 0.5, 1/7 or 5/20")
    if match[2] is not None and int(match[2]) == 0:
        raise LeaseError(f"-p {text}: division by 0")
    share = Fraction(int(match[1]), int(match[2])) if match[2] is not None else Fraction(text.strip())
    if not 0 < share <= 1:
        raise LeaseError(f"-p {text}: a part must be above 0 and at most 1; use -n for several GPUs")
    if share == 1:
        return GpuPart(max(of, 1), max(of, 1))
    if of == 0:
        raise LeaseError(f"-p {text}: this pool grants whole GPUs only (slurm_shards_per_gpu is 0)")
    exact = share * of
    shards = int(exact)
    if shards == 0:
        raise LeaseError(f"-p {text}: the smallest part of a GPU is 1/{of}")
    if exact == shards:
        return GpuPart(shards, of)
    note = f"{text} of a GPU is {float(exact):.2f} of {number_of(of, 'shard')}: you get {shards} ({shards / of:.3g})"
    return GpuPart(shards, of, note)


def part_for_memory(wanted_mib: int, gpu_mib: int, of: int = SHARDS_PER_GPU, context_bytes: int = 0) -> GpuPart:
    """The smallest part of which `wanted_mib` MiB are left when a program has its context; gpu_mib: what the driver
    leaves of a GPU."""
    context_mib = -(-context_bytes // MIB)
    if wanted_mib <= 0:
        raise LeaseError(f"-m {wanted_mib}: give the memory in MiB, above 0")
    if wanted_mib + context_mib > gpu_mib:
        beside = f", {context_mib} of them for a program's context" if context_mib else ""
        raise LeaseError(f"-m {wanted_mib}: the GPUs have {gpu_mib} MiB each{beside}; use -n for several")
    if of == 0:
        return GpuPart(1, 1)
    shards = -(-(wanted_mib + context_mib) * of // gpu_mib)
    got = memory_limit_mib(gpu_mib, shards, of)
    beside = f", {context_mib} of them for a program's context" if context_mib else ""
    note = (
        ""
        if got == wanted_mib
        else f"{wanted_mib} MiB: you get {shards} of {number_of(of, 'shard')}, {got} MiB{beside}"
    )
    return GpuPart(shards, of, note)


def memory_limit_mib(gpu_mib: int, shards: int, of: int) -> int:
    """Memory of a part, rounded down to MiB, so that the parts of a GPU never sum above it. gpu_mib: what the driver
    leaves of it. The contexts of the programs in the part come out of this."""
    return gpu_mib * shards // of


def host_memory_mib(stated_mib: int, emulated_mib: Iterable[int | None]) -> int:
    """Host memory of an instance: what the engine states, for each of its devices, and what an emulated one keeps there
    of its part (None: it is a real one)."""
    return sum(stated_mib + (part or 0) for part in emulated_mib)


def rounded(shards: int, of: int, gpu_mib: int, sm_count: int | None) -> list[str]:
    """What of a part is no whole number, in words: its MiB of memory, and, where they are limited, its SMs (streaming
    multiprocessors; None: not limited, or not known)."""
    memory, share, said = Fraction(gpu_mib * shards, of), share_text(shards, of), []
    if memory.denominator != 1:
        said.append(f"{share} of {gpu_mib} MiB is {float(memory):.2f} MiB: you get {int(memory)}")
    if sm_count is not None and (sm_count * shards) % of:
        said.append(
            f"{share} of {sm_count} SMs is {sm_count * shards / of:.2f}: MPS rounds that up as the GPU needs it"
        )
    return said


def thread_percentage(shards: int, of: int) -> str:
    """MPS's CUDA_MPS_ACTIVE_THREAD_PERCENTAGE of a part; a float in (0, 100], as its daemon takes it."""
    return f"{100 * shards / of:.4f}".rstrip("0").rstrip(".")
