"""How many GPUs a program's framework sees: stated with its lease, and refused before that where it is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolkit.lease import LeaseError
from toolkit.lease.before.program_needs import Needs
from toolkit.lease.endpoint import LeaseEndpoint
from validation.base.counting import number_of

#: Frameworks that an engine may be for, by the names that programs import, and what people call them.
FRAMEWORKS = {"torch": "PyTorch", "tensorflow": "TensorFlow"}
VISIBLE = "CUDA_VISIBLE_DEVICES"
#: As many as no lease has.
_ANY = 1 << 20


def framework(needed: Needs) -> str:
    """That which the program imports, "" where it imports none or nobody knows by which Python."""
    if not needed.python:
        return ""
    return FRAMEWORKS["torch"] if needed.torch else FRAMEWORKS["tensorflow"] if needed.tensorflow else ""


def visible(count: int, environment: Mapping[str, str]) -> int:
    """How many of a lease's GPUs a user's own CUDA_VISIBLE_DEVICES leaves, by CUDA's rules: the list ends where an
    entry is none of their numbers, and one that comes twice leaves none."""
    listed = environment.get(VISIBLE)
    if listed is None or listed.startswith(("GPU-", "MIG-")):
        return count  # the engine's own words are about UUIDs
    found: list[int] = []
    for entry in listed.split(","):
        text = entry.strip()
        if not (text.isascii() and text.isdigit()) or int(text) >= count:
            break
        if int(text) in found:
            return 0
        found.append(int(text))
    return len(found)


def refuse_none(name: str, count: int | None, environment: Mapping[str, str], cpu_ok: bool) -> None:
    """LeaseError where PyTorch would see none of the GPUs, and go on without a word on this machine's processor. count:
    None where nobody knows it yet."""
    if name == FRAMEWORKS["torch"] and not cpu_ok and not visible(_ANY if count is None else count, environment):
        raise LeaseError(
            f"{name} would see no GPU: {VISIBLE}={environment[VISIBLE]} in your environment leaves none of the "
            f"lease's; unset {VISIBLE}, or give --cpu-ok to run it on this machine's processors"
        )


def words_here(name: str, endpoints: Sequence[LeaseEndpoint], environment: Mapping[str, str]) -> str:
    """By an engine: PyTorch sees 2 GPUs; "" of no framework."""
    count = sum(len(end.devices) for end in endpoints)
    seen = visible(count, environment) if name == FRAMEWORKS["torch"] else count
    return f"{name} sees {number_of(seen, 'GPU')}" if name else ""


def words_there(name: str, endpoints: Sequence[LeaseEndpoint]) -> str:
    """On their servers, of which each process sees those of its own."""
    counts = sorted({len(end.devices) for end in endpoints})
    if not name:
        return ""
    if len(counts) > 1:
        return f"{name} sees {counts[0]} to {counts[-1]} GPUs, those of its server"
    return f"{name} sees {number_of(counts[0], 'GPU')}{' on each server' if len(endpoints) > 1 else ''}"
