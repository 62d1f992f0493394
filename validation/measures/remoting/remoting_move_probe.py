"""A GPU is taken from one class of users and given to another while a program of the first trains on it.

The one that gives trains on the server's last free GPU and keeps its work when it is asked to end. Then somebody of a
class that preempts his asks for a GPU of that server. The first program is started again at once, elsewhere where
there is another server, and goes on from its checkpoint; at last the same training runs undisturbed. Who gives and who
takes is what the pool's policy says; their own accounts ask for the leases. With a
load (remoting_program) all of them are PyTorch programs by the engine torch.

`stdout`: under the lines `== gave`, `== took`, `== resumed`, `== whole` the documents of elastic-ai-train, for `gave`
`{"failed": WORDS}` where it ended without keeping its work. `facts`: server, elsewhere, emulated, engine,
engine_release, unmade (why nothing was tried, ""), gave and took (classes), grace_s, safe_s (how long a lease cannot be
taken), asked_s (when the other asked) and gone_s (the first one's command ended), both by the client's monotonic
clock, as the documents' times are; leases (of gave and took: start_s and end_s, by Slurm, whole seconds since 1970).
"""

from __future__ import annotations

import json
import math
import os
import pwd
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from validation.measures.remoting.remoting_neighbours_probe import stop
from validation.measures.remoting.remoting_shares_probe import END_S, said_in
from validation.probes import ProbeDoc, remoting, remoting_program
from validation.probes.supervise import die_with_parent
from validation.probes.tool import Ran, Stopped, document, run_tool, stopped

HEADING = re.compile(r"^== (gave|took|resumed|whole)$", re.MULTILINE)
WITHOUT_END = str(1 << 20)  # steps, the most that the program takes
KEEP_EVERY = "100"  # steps; what is lost at most where nobody is told
KEPT = 3  # exit status of a training that was asked to end and kept its work
TRAINS_S = 3.0  # before anybody asks, so that there is something to lose
LOOK_S = 0.2


@dataclass
class Asked:
    """What is asked of this probe."""

    server: str  # GPU server
    elsewhere: str  # another one, where the first program goes on; "": on the same, when the other has ended
    batch: int  # images of a step
    inputs: int  # numbers of an image
    hidden: int  # width of the network
    pace_ms: int  # that a step of the one that gives takes at least
    steps: int  # of the one that takes, and of the one that gave after it has gone on
    safe_s: float  # the longest time for which leases cannot be taken that is waited for
    limit_s: float  # everything may take so long
    load: list[str] = field(default_factory=list)  # what PyTorch trains; empty: elastic-ai-train


class Member(NamedTuple):
    """Somebody of a class of users who has an account on this machine."""

    users: str
    name: str


class Way(NamedTuple):
    """Who gives to whom, and for how long."""

    gave: Member
    took: Member
    grace_s: float
    safe_s: float


class Unmade(Exception):
    """Why nothing is tried on this pool; one sentence."""


def seconds(text: str) -> float:
    """Of Slurm's [D-][HH:]MM:SS, without end for UNLIMITED; 0 for other words, as NONE, or nothing."""
    if text == "UNLIMITED":
        return math.inf
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if match is None:
        return 0.0
    days, hours, minutes, secs = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + secs


def way(config: str, rows: Sequence[str], members: Mapping[str, Sequence[str]], safe_s: float) -> Way:
    """config: what `scontrol show config` printed; rows: Name|Preempt|GraceTime of each QOS; members: of each class,
    those with an account here. Unmade where the policy has no such classes, or its times cannot be waited for.
    """
    known = dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", config, re.MULTILINE))
    classes = [row.split("|") for row in rows if row.count("|") == 2]
    pairs = [
        (name, other, grace)
        for name, preempts, _ in classes
        for other, _, grace in classes
        if other in preempts.split(",")
    ]
    if known.get("PreemptType") != "preempt/qos" or not pairs:
        raise Unmade(
            "the pool's policy has no class of users that takes GPUs back from another (preempts, docs/how-to/pool.md)"
        )
    safe = seconds(known.get("PreemptExemptTime", ""))
    if safe > safe_s:
        raise Unmade(f"the policy keeps each lease safe for {safe:g} s, and no more than {safe_s:g} s are waited for")
    for took, gave, grace in sorted(pairs):
        givers, takers = members.get(gave, ()), members.get(took, ())
        if givers and takers:
            taker = next((name for name in takers if name not in givers[:1]), takers[0])
            if not seconds(grace):
                raise Unmade(f"the policy gives leases of {gave} no time after their notice (grace_s)")
            return Way(Member(gave, givers[0]), Member(took, taker), seconds(grace), safe)
    named = ", ".join(f"{took} from {gave}" for took, gave, _ in sorted(pairs))
    raise Unmade(f"nobody of both classes has an account on this client ({named})")


def local(name: str) -> bool:
    """Whether a user other than root has an account here."""
    try:
        return pwd.getpwnam(name).pw_uid != 0
    except KeyError:
        return False


def policy(safe_s: float) -> Way:
    """What the pool's Slurm says of its classes of users."""
    config = remoting.slurm_output("scontrol", "show", "config")
    if not re.search(r"^PreemptType\s*= preempt/qos\s*$", config, re.MULTILINE):
        return way(config, (), {}, safe_s)  # such a pool need not have an accounting
    rows = remoting.slurm_output("sacctmgr", "-nP", "show", "qos", "format=Name,Preempt,GraceTime").splitlines()
    members: dict[str, list[str]] = {}
    for row in remoting.slurm_output("sacctmgr", "-nP", "show", "assoc", "format=Account,User").splitlines():
        users, _, name = row.partition("|")
        if name and local(name) and name not in members.setdefault(users, []):
            members[users].append(name)
    return way(config, rows, {users: sorted(names) for users, names in members.items()}, safe_s)


def start_as(member: Member, command: Sequence[str]) -> subprocess.Popen[str]:
    """A command of somebody's, for his class; it ends with the probe."""
    entry = pwd.getpwnam(member.name)
    groups = os.getgrouplist(member.name, entry.pw_gid)
    # by sudo the toolkit takes no word of the environment, and root's folder for running programs is closed to others
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("SUDO_", "XDG_", "SLURM_", "SBATCH_"))
    }
    kept |= {"HOME": entry.pw_dir, "USER": member.name, "LOGNAME": member.name, "SBATCH_ACCOUNT": member.users}
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
        env=kept,
        user=entry.pw_uid,
        group=entry.pw_gid,
        extra_groups=groups,
        preexec_fn=die_with_parent,
    )


def command(args: Asked, server: str) -> list[str]:
    """A training on one GPU of a server, without its steps."""
    lease = [remoting.COMMAND, "run", "-n", "1", "-l", server, *remoting_program.wish(args.load), "--"]
    sizes = ["--gpus", "1", "--batch", str(args.batch)]
    sizes += [] if args.load else ["--json", "--inputs", str(args.inputs), "--hidden", str(args.hidden)]
    return [*lease, *remoting_program.for_others(args.load), *sizes]


class Move:
    """One GPU, from one to the other."""

    def __init__(self, args: Asked, who: Way, stack: ExitStack) -> None:
        """What is started is ended with the stack."""
        self.args, self.who, self.stack = args, who, stack
        self.until = time.monotonic() + args.limit_s
        self.leases: dict[str, int] = {}

    def train(self, member: Member, server: str, *more: str) -> subprocess.Popen[str]:
        """A training by somebody on one GPU of a server."""
        program = start_as(member, [*command(self.args, server), *more])
        self.stack.callback(stop, program)
        return program

    def trains(self, program: subprocess.Popen[str], what: str) -> int:
        """The number of its lease, when it has done its first step; Unmet where it does none."""
        assert program.stderr is not None
        lease, last = 0, ""
        for line in program.stderr:
            if found := re.match(r"lease (\d+): ", line):
                lease = int(found[1])
            if line.split()[:1] == ["0"]:
                return lease
            last = line.strip() or last
        raise remoting.Unmet(f"{what} did not train: {last[:200]}")

    def end(self, program: subprocess.Popen[str], what: str) -> Ran:
        """How it ended by itself; Unmet where it takes too long."""
        while not stopped():
            if time.monotonic() > self.until:
                ran = said_in(program, 0)
                raise remoting.Unmet(f"{what} came to no end within {self.args.limit_s:g} s: {remoting.said(ran)}")
            with suppress(subprocess.TimeoutExpired):  # what it said meanwhile is not lost
                out, err = program.communicate(timeout=LOOK_S)
                return Ran([], program.returncode, out, err)
        raise Stopped

    def document(self, program: subprocess.Popen[str], what: str) -> dict[str, Any]:
        """What it says at its end; Unmet where it did not train to its end."""
        ran = self.end(program, what)
        if found := re.search(r"^lease (\d+): ", ran.stderr, re.MULTILINE):
            self.leases[what] = int(found[1])
        if ran.returncode:
            raise remoting.Unmet(f"{what} did not train: {remoting.said(ran)}")
        return remoting.answer(ran, what)

    def made(self, work: Path) -> tuple[dict[str, Any], dict[str, Any]]:
        """The documents by their names, and the probe's own times."""
        args, (gave, took) = self.args, self.who[:2]
        keep = ["--keep", str(work), "--pace", str(args.pace_ms), *([] if args.load else ["--keep-every", KEEP_EVERY])]
        first = self.train(gave, args.server, "--steps", WITHOUT_END, *keep)
        self.leases["gave"] = self.trains(first, f"the program of {gave.users}")
        time.sleep(TRAINS_S)
        asked_s = time.monotonic()
        second = self.train(took, args.server, "--steps", str(args.steps))
        ended = self.end(first, f"the program of {gave.users}")
        gone_s = time.monotonic()
        documents: dict[str, Any] = {"gave": {"failed": remoting.said(ended), "status": ended.returncode}}
        if ended.returncode == KEPT:
            documents["gave"] = remoting.answer(ended, "gave")
        # whoever takes needs no more steps than these, and where nobody was told nobody knows how many were done
        done = int(documents["gave"].get("steps", kept_steps(work)))
        total = str(done + args.steps)
        again = self.train(gave, args.elsewhere or args.server, "--steps", total, *keep)
        documents["took"] = self.document(second, "took")
        documents["resumed"] = self.document(again, "resumed")
        return documents, {"asked_s": asked_s, "gone_s": gone_s, "total": total}


def kept_steps(work: Path) -> int:
    """Of the checkpoint's first line, 0 where there is none."""
    try:
        with work.open("rb") as file:
            return int(json.loads(file.readline())["steps"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def record(lease: int) -> dict[str, int]:
    """Start and end of a lease by Slurm's accounting; Unmet where they are not there."""
    for _ in range(20):  # the accounting hears of an end some seconds later
        words = remoting.slurm_output("sacct", "-nPX", "-j", str(lease), "-o", "Start,End").split()
        times = words[-1].split("|") if words else []
        if len(times) == 2 and all(time_.isdigit() for time_ in times):
            return {"start_s": int(times[0]), "end_s": int(times[1])}
        time.sleep(1)
    raise remoting.Unmet(f"Slurm's accounting has no start and end of lease {lease}")


def measure_move(args: Asked, who: Way) -> tuple[str, dict[str, Any]]:
    """The output, and the facts of the probe's own."""
    gpus = remoting.pool_of([args.server, args.elsewhere] if args.elsewhere else [args.server])
    others = sum(gpu["node"] == args.server for gpu in gpus) - 1
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="elastic-ai-")))
        os.chown(folder, pwd.getpwnam(who.gave.name).pw_uid, -1)
        if others:
            stack.enter_context(remoting.leased("-n", str(others), "-l", args.server))
        move = Move(args, who, stack)
        documents, times = move.made(folder / "work")
        alone = [*command(args, args.server), "--steps", times.pop("total")]
        ran = run_tool(alone, max(END_S, move.until - time.monotonic()))
        if ran.returncode:
            raise remoting.Unmet(f"undisturbed it did not train: {remoting.said(ran)}")
        documents["whole"] = remoting.answer(ran, "whole")
        times["leases"] = {name: record(move.leases.get(name, 0)) for name in ("gave", "took")}
    return "".join(f"== {name}\n{json.dumps(made)}\n" for name, made in documents.items()), times


def probe(args: Asked) -> ProbeDoc:
    """Who gave what to whom, and when."""

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        facts: dict[str, Any] = {"server": args.server, "elsewhere": args.elsewhere, "unmade": ""}
        facts |= remoting_program.facts(args.load)
        try:
            facts["emulated"] = any(gpu["emulated"] for gpu in remoting.gpus_of([args.server]))
            who = policy(args.safe_s)
            facts |= {"gave": who.gave.users, "took": who.took.users, "grace_s": who.grace_s, "safe_s": who.safe_s}
            output, more = measure_move(args, who)
            return Ran([remoting.COMMAND, "run"], 0, output, ""), {**facts, **more}, None
        except Unmade as fault:
            return Ran([remoting.COMMAND, "run"], 0, "", ""), {**facts, "unmade": str(fault)}, None
        except remoting.Unmet as fault:
            return Ran([remoting.COMMAND, "run"], 0, "", ""), facts, str(fault)

    release = remoting_program.facts(args.load)["engine_release"]
    return document("remoting-move", remoting_program.tool_of(args.load), measure, lambda _: release)
