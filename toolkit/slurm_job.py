"""`toolkit validate --launcher slurm`: how long the job of a plan may take, and what cannot run in one."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import ceil

from toolkit.errors import UsageFault
from toolkit.loudness import progress
from validation.execute import Launcher
from validation.execute.slurm import SlurmLauncher, Wanted

START_MIN = 15
"""Minutes beside the measurements: probes start, results that do not decide are repeated. Project default."""
LEASING = ("remoting",)
"""Suites that ask Slurm for leases on the servers, which the job itself would hold."""

Make = Callable[[str, float], Launcher]
"""From the inventory's path and the seconds that the plan will take to a launcher."""


@dataclass(frozen=True)
class SlurmJob:
    """What the operator said of the job. `options`: further ones of salloc."""

    wait_min: int
    options: tuple[str, ...] = ()

    def make(self, site: str, seconds: float) -> Launcher:
        """A launcher whose job lasts twice as long as the plan, for repeats may take as long again."""
        minutes = ceil(2 * seconds / 60) + START_MIN
        wanted = Wanted(minutes, 60.0 * self.wait_min, self.options)
        return SlurmLauncher(site, wanted, progress)


def chosen(launcher: str, options: str, wait_min: int | None) -> SlurmJob | None:
    """What `--launcher`, `--slurm` and `--slurm-wait` come to; None for ssh. UsageFault where they do not fit."""
    if launcher != "slurm":
        if options or wait_min is not None:
            raise UsageFault("--slurm and --slurm-wait go with --launcher slurm")
        return None
    try:
        words = tuple(shlex.split(options))
    except ValueError as fault:
        raise UsageFault(f"--slurm {options!r}: {fault}") from None
    if words and not words[0].startswith("-"):
        raise UsageFault(f"--slurm takes options of salloc, as --slurm='-p gpu -A project'; {words[0]!r} is none")
    return SlurmJob(10 if wait_min is None else wait_min, words)


def refuse(suites: Collection[str]) -> None:
    """UsageFault for suites that cannot be measured inside a job that holds all servers."""
    for suite in LEASING:
        if suite in suites:
            raise UsageFault(
                f"suite {suite} asks Slurm for leases on the servers, which --launcher slurm holds in its own job; "
                f"validate it by itself over ssh: --suite {suite}"
            )


__all__ = ["Make", "SlurmJob", "chosen", "refuse"]
