"""Processors of the machine that is measured, whatever the session may use that a probe was started in."""

from __future__ import annotations

import contextlib
import os


def take_all() -> None:
    """Run on every processor that this machine, container or job was given.

    A login may be held to a few of them (CPUAffinity= of systemd): what it measured then would be those few. A control
    group's set of processors stays the limit, for the kernel grants no other. A job of Slurm keeps what Slurm bound.
    """
    if "SLURM_JOB_ID" not in os.environ:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, range(os.sysconf("SC_NPROCESSORS_CONF")))
