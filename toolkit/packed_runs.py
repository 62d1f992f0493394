"""Runs that are packed: a bundle is read as the folder of the run that it has, for as long as that is needed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from toolkit import rundir
from toolkit.errors import UsageFault
from validation.base.temporary import room
from validation.signing.bundle import Damaged, extract_bundle

BUNDLE = ".zip"
ROOM = "elastic-ai-bundle"


@contextmanager
def unpacked(bundle: Path) -> Iterator[Path]:
    """The folder of the run in a bundle, whose form is checked; UsageFault where it is none."""
    with room(ROOM) as folder:
        try:
            run_dir = extract_bundle(bundle, folder)
        except Damaged as fault:
            raise UsageFault(f"{bundle}: {fault}") from None
        yield run_dir


@contextmanager
def opened(runs_dir: Path, run: str) -> Iterator[Path]:
    """The folder of a run given by path or name, or by the file of a bundle; UsageFault when there is none."""
    bundle = next((path for path in (Path(run), runs_dir / run) if path.suffix == BUNDLE and path.is_file()), None)
    if bundle is None:
        yield rundir.find(runs_dir, run)
        return
    with unpacked(bundle) as folder:
        yield folder


def bundles(runs_dir: Path, beside: Collection[Path]) -> list[Path]:
    """Bundles in a folder of runs, without those whose runs are in `beside`. A folder of a bundle's name that is not
    signed is another run's, or lost its signatures."""
    return [path for path in sorted(runs_dir.glob(f"*{BUNDLE}")) if path.with_suffix("") not in beside]
