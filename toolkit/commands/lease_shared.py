"""What the commands around leases share: options, errors, and the way to the head from a machine outside the pool."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from toolkit.lease import LeaseError, durations
from toolkit.lease.display import several
from toolkit.loudness import progress
from validation.base import noise

F = TypeVar("F", bound=Callable[..., Any])
_LINE_BYTES = 1 << 16
GIVE_UP = ("-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=10")
"""For ssh: a machine that does not answer is an error after seconds. What the inventory says of it goes before."""
head_options = click.option(
    "-i",
    "--inventory",
    type=click.Path(path_type=Path),
    help="Ask this inventory's head by ssh, from outside the pool.",
)


class Duration(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # no generic in the click of the nodes
    """A time as 90m, 2h or 1h30m; its value is seconds. `most_s`: the longest; `bare`: a number alone is seconds."""

    name = "time"

    def __init__(self, most_s: int = durations.MOST_S, bare: bool = False, least_s: int = 1) -> None:
        """Above 0, up to a year, and always with a unit, unless said otherwise."""
        self._most_s, self._bare, self._least_s = most_s, bare, least_s

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Seconds; click's usage error where it is no time."""
        if isinstance(value, int):
            return value
        if self._bare and re.fullmatch(r"[0-9]{1,9}", value):
            seconds = int(value)
        else:
            try:
                seconds = durations.seconds_of(value)
            except ValueError as fault:
                self.fail(str(fault), param, ctx)
        if seconds < self._least_s:
            self.fail(f"{value}: give a time of at least {duration_text(self._least_s)}", param, ctx)
        if seconds > self._most_s:
            self.fail(f"{value}: is longer than {duration_text(self._most_s)}", param, ctx)
        return seconds


def duration_text(seconds: int) -> str:
    """The largest unit that fits: a day, 36 hours, 90 minutes."""
    unit, word = next(
        (u, w) for u, w in ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")) if not seconds % u
    )
    return several(seconds // unit, word)


grace_type = Duration(86_400, bare=True, least_s=0)
"""How long a program has before its lease is taken back."""


def say(words: str) -> None:
    """To the person at the terminal; the program has stdout for itself."""
    progress(words)


def on_head(inventory: Path | None, words: Sequence[str]) -> bool:
    """Outside the pool: run the same command on the head, and say True. With Slurm here and no -i: False."""
    if inventory is None and shutil.which("scontrol"):
        return False
    try:
        from toolkit.inventory import read_inventory
        from toolkit.lab.standing import is_up
        from toolkit.lab_inventory import lab_inventory
    except ImportError:
        if inventory is not None:
            raise LeaseError("-i is for the machine that provisions; omit it here") from None
        raise LeaseError("Slurm is not installed here; request leases on a machine of the pool") from None
    if inventory is None and not is_up():
        raise LeaseError(
            "Slurm is not installed here; name the pool by -i inventories/SITE, or ask on one of its machines"
        )
    inventory = inventory or lab_inventory()
    topology = read_inventory(inventory)
    head = next((node for node in topology.nodes if "heads" in node.groups), None)
    if head is None:
        raise LeaseError(f"{inventory}: no host in group heads; the head knows the pool")
    target = head.ssh
    key = ["-i", target.key_file] if target.key_file else []
    where = [
        "ssh",
        "-o",
        "BatchMode=yes",
        *key,
        "-p",
        str(target.port),
        *target.extra_args,
        *GIVE_UP,
        f"{target.user}@{target.host}",
    ]
    code = pass_on(where, noise.Marked(["toolkit", *words]))
    if code == 255:
        raise LeaseError(f"{head.name} ({target.host}) does not answer by ssh")
    if code == 127:
        raise LeaseError(f"{head.name} has no toolkit command yet; run: toolkit deploy -i {inventory}")
    if code:
        sys.exit(code)
    return True


def pass_on(where: Sequence[str], marked: noise.Marked) -> int:
    """Run a command on the head and print what it prints, as it comes, without what login files print around it."""
    with subprocess.Popen([*where, marked.line], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        ours, end = False, b""  # `end`: of the line before; the last one's is that of the mark
        while line := process.stdout.readline(_LINE_BYTES):
            if marked.is_mark(line):
                ours, end = not ours, b""
            elif ours:
                bare = line.rstrip(b"\n")
                sys.stdout.buffer.write(end + bare)
                sys.stdout.buffer.flush()
                end = line[len(bare) :]
        return process.wait()


def request_options(command: F, default_time: str = "as the pool allows") -> F:
    """What is asked for; the short forms are those that users of FlexDirect know."""
    for option in reversed(
        (
            click.option(
                "-n", "--gpus", "count", type=int, default=1, show_default=True, metavar="N",
                help="Give the program this number of GPUs.",
            ),
            click.option("-p", "--part", "part", metavar="PART",
                         help="Take this part of each GPU, such as 0.5, 1/7 or 5/20.  [default: whole GPUs]"),
            click.option("-m", "--memory", "memory_mib", type=int, metavar="MIB",
                         help="Take parts with this much memory in MiB, instead of --part."),
            click.option("--up-to", "up_to", metavar="PART",
                         help="Compute with up to this part of each GPU while nobody else needs it; goes with --part."),
            click.option("--apart", is_flag=True, help="Take each GPU or part from a server of its own."),
            click.option("-l", "--servers", "servers", metavar="NAME,...", help="Take GPUs of these servers only."),
            click.option("--class", "gpu_class", default="", metavar="NAME", help="Take GPUs of this class only."),
            click.option("--engine", "engine", default="", metavar="NAME",
                         help="Use this engine of the site's.  [default: run: what PROGRAM needs; else the first]"),
            click.option("--time", "seconds", type=Duration(), metavar="TIME",
                         help=f"Take them for this time, such as 90m or 2h.  [default: {default_time}]"),
        )
    ):  # fmt: skip
        command = option(command)
    return command
