"""The short training in several ways, in turns: A, B, A, B. What changes between two ways is then not the hour.

Ways are words, of which each changes one thing of the job: `2x4` (nodes x ranks of each, on the first of the hosts),
`rdma` and `tcp` (what carries the training between nodes), `gdr-on` and `gdr-off` (whether NCCL may move data between
adapter and GPU directly), `synthetic` and `real` (images made on the device, or files that are read and decoded),
`cores-4` (real images, with 4 processors for each rank), `torchrun` (torch's own launcher and all-reduce). In an image
without mpirun torchrun launches all of them, and each report says so.

`stdout` and `stderr`: of each job what training_short has, under a line `== turn 1 of 2: 2x4`. No facts. A way that
cannot be taken on these nodes (`cannot` in its report) is taken no second time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from validation.base.counting import number_of
from validation.measures.training import training_short_probe
from validation.probes import ProbeDoc
from validation.probes.tool import Ran, document
from validation.probes.train_trouble import trouble

LAYOUT, CORES = re.compile(r"([1-9]\d*)x([1-9]\d*)"), re.compile(r"cores-([1-9]\d*)")
HEADING = re.compile(r"^== turn (\d+) of (\d+): (\S+)$", re.MULTILINE)
NO_GPUDIRECT = "NCCL_NET_GDR_LEVEL=LOC"  # LOC: never
LEAST_S = 30  # of a job


@dataclass
class Asked(training_short_probe.Asked):
    """What is asked of this probe: a short training, the ways that it is taken in, and how often each."""

    ways: list[str] = field(default_factory=list)
    turns: int = 2


def job_of(args: Asked, way: str) -> training_short_probe.Asked:
    """The job of one way; ValueError for a word that is none, and for more nodes than there are."""
    given = {key: value for key, value in vars(args).items() if key not in ("ways", "turns")}
    limit = max(LEAST_S, args.time_limit_s // max(1, args.turns * len(args.ways)))
    job = replace(training_short_probe.Asked(**given), time_limit_s=limit)
    if found := LAYOUT.fullmatch(way):
        nodes, each = int(found[1]), int(found[2])
        if nodes > len(args.hosts):
            raise ValueError(f"{way}: there are {number_of(len(args.hosts), 'host')}")
        hosts = [f"{host.rpartition(':')[0]}:{each}" for host in args.hosts[:nodes]]
        return replace(job, hosts=hosts, ranks=nodes * each, ends=args.ends[:nodes])
    if found := CORES.fullmatch(way):
        return replace(job, images="real", cores=int(found[1]))
    changes: dict[str, dict[str, Any]] = {
        "rdma": {},
        "tcp": {"transport": "tcp"},
        "gdr-on": {},
        "gdr-off": {"variables": [*args.variables, NO_GPUDIRECT]},
        "synthetic": {"images": "synthetic"},
        "real": {"images": "real"},
        "torchrun": {"launcher": "torchrun", "framework": "ddp"},
    }
    if way not in changes:
        raise ValueError(f"unknown way {way!r}; known: 2x4, cores-4, {', '.join(changes)}")
    return replace(job, **changes[way])


def probe(args: Asked) -> ProbeDoc:
    """Each way once in each turn."""
    for way in args.ways:
        job_of(args, way)  # a word that is no way, before anything is run
    outputs: dict[str, list[str]] = {"stdout": [], "stderr": []}
    first: list[str] = []
    failed: list[str] = []  # the turn in which a job ended otherwise than asked

    def measure() -> tuple[Ran, dict[str, Any], str | None]:
        able = training_short_probe.launched(args)
        jobs = {way: job_of(able, way) for way in args.ways}
        looked, why = training_short_probe.alike(able)
        if looked is not None:
            return looked, {}, why
        cannot: dict[str, str] = {}
        ran = Ran([], 0, "", "")
        for turn in range(1, args.turns + 1):
            for way in (way for way in args.ways if way not in cannot):
                ran, report, error = training_short_probe.train(jobs[way])
                first.extend(() if first else ran.command)
                for name, text in (("stdout", ran.stdout), ("stderr", ran.stderr)):
                    ended = "" if not text or text.endswith("\n") else "\n"
                    outputs[name].append(f"== turn {turn} of {args.turns}: {way}\n{text}{ended}")
                said = str(report.get("cannot", ""))
                if said:
                    cannot[way] = said
                elif ran.returncode or error:
                    why = trouble(ran.stdout + "\n" + ran.stderr)
                    error = "; ".join(filter(None, (why, error or ran.failure)))
                    failed.append(f"turn {turn}, {way}: {error}")
                    return _all(ran, first, outputs), {}, failed[0]
        every = "; ".join(f"{way}: {why}" for way, why in cannot.items())
        return _all(ran, first, outputs), {}, every if len(cannot) == len(args.ways) else None

    made = document("training-turns", "horovod", measure, lambda ran: training_short_probe.version(_part(ran.stdout)))
    made["error"] = failed[0] if failed else made["error"]  # else it is of the last job's exit status alone
    return made


def _all(ran: Ran, command: list[str], outputs: dict[str, list[str]]) -> Ran:
    """The whole as one tool that ran: the first job's command, every job's output, how the last one ended."""
    return Ran(list(command), ran.returncode, "".join(outputs["stdout"]), "".join(outputs["stderr"]))


def _part(stdout: str) -> str:
    """The first job's output."""
    return next((text for text in HEADING.split(stdout)[4::4] if text.strip()), "")
