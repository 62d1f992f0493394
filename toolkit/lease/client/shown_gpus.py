"""By what a program on a lease's client is shown its GPUs without CUDA: a library of NVML and an nvidia-smi, which the
engine's archive brings in client/. Both read ELASTIC_AI_GPUS (endpoint.gpus_text) and ask nobody."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from toolkit.lease.engines import BESIDE

PROGRAM = "nvidia-smi"


def program_of(engine_dir: Path) -> Path | None:
    """Its nvidia-smi; None of an archive that brings none."""
    path = engine_dir / "client" / "bin" / PROGRAM
    return path if path.is_file() else None


def any_program(engine_dir: Path) -> Path | None:
    """That of the site's first engine, or of one beside it, as long as no lease says which it is."""
    folders = (engine_dir, *sorted(engine_dir.parent.glob(f"{BESIDE}/*/current")))
    return next(filter(None, map(program_of, folders)), None)


def environment(engine_dir: Path, given: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """`given`, what the adapter gives the program, with both before what else has their names. own: its user's
    environment. Nothing of an archive that brings them not."""
    if program_of(engine_dir) is None:
        return dict(given)
    folder = engine_dir / "client"
    paths = {"PATH": folder / "bin", "LD_LIBRARY_PATH": folder / "lib"}
    before = {name: given.get(name, own.get(name, "")) for name in paths}
    return {**given, **{name: f"{path}:{before[name]}".rstrip(":") for name, path in paths.items()}}
