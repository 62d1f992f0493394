"""Suites turn topology, fabric and criteria into a plan, before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from validation.measures.asbuilt import plan as asbuilt_plan
from validation.measures.compute import burn_in_plan
from validation.measures.fabric import plan as fabric_plan
from validation.measures.node import plan as node_plan
from validation.measures.pool import plan as pool_plan
from validation.measures.remoting import plan as remoting_plan
from validation.measures.training import long_plan
from validation.measures.training import plan as training_plan
from validation.model import Coverage, LeftOut, Measurement, Plan, Scalar, Topology
from validation.plan import each_node, training_choice
from validation.plan.request import Part, PlanError, Request
from validation.rules.criterion import Criterion
from validation.rules.fabric import Fabric

__all__ = [
    "ALONE",
    "DEFAULT",
    "SUITES",
    "UNASKED",
    "WORDS",
    "Part",
    "PlanError",
    "Planned",
    "Request",
    "SuiteFunc",
    "make_plan",
    "plan_rounds",
]

SuiteFunc = Callable[[Request], Part]
SUITES: dict[str, SuiteFunc] = {
    "preflight": node_plan.plan,
    "as-built": asbuilt_plan.plan,
    "transport": fabric_plan.plan,
    "compute": each_node.plan,
    "burn-in": burn_in_plan.plan,
    "training": training_plan.plan,
    "remoting": remoting_plan.plan,
    "operations": pool_plan.plan,
}
#: Measured unless others are named. As-built is for sites that site.yml provisioned; compute and remoting need the
#: nodes to themselves, operations a time of work.
DEFAULT = ("preflight", "transport", "training")
UNASKED = ("preflight", "transport", "compute")
"""What one machine by itself does, without an inventory, where no suite is named."""
ALONE = (*UNASKED, "burn-in", "training", "remoting")
"""What it can do."""

OPTIONS: dict[str, str] = {
    "seconds": "measured seconds of each TCP bandwidth measurement",
    "latency_seconds": "seconds of each TCP latency measurement",
    "warmup": "warm-up steps of a training measurement",
    "steps": "measured steps of a training measurement",
    "batch": "images per rank and step",
    "minutes": "minutes of the burn-in's load",
    **long_plan.NUMBERS,
    "quick": "1: what each node does by itself, at its shortest",
    "anyway": "1: measures GPUs that somebody works on, too",
}


WITHOUT = "without"
WORDS: dict[str, str] = {
    WITHOUT: "criteria that are not measured in this run, with commas between them",
    **training_choice.OPTIONS,
    **long_plan.WORDS,
}


@dataclass(frozen=True)
class Planned:
    """What all suites together plan. The measurements of a round of pairs are made only when they are looked at."""

    suites: tuple[str, ...]
    rounds: tuple[Sequence[Measurement], ...]
    left_out: tuple[LeftOut, ...]
    coverage: tuple[Coverage, ...]


def make_plan(
    run: str,
    topology: Topology,
    fabric: Fabric,
    criteria: Iterable[Criterion],
    suites: Sequence[str],
    options: Mapping[str, Scalar] | None = None,
) -> Plan:
    """Everything that is going to be measured, in rounds. `options` holds keys of `OPTIONS` and of `WORDS`;
    None values are ignored.

    PlanError where a suite or option is unknown, or where a selected suite would measure nothing: a run of zero
    measurements cannot exist.
    """
    planned = plan_rounds(topology, fabric, criteria, suites, options)
    rounds = [list(one) for one in planned.rounds]
    return Plan(
        run=run,
        fabric=fabric.name,
        suites=planned.suites,
        measurements=tuple(m for r in rounds for m in r),
        rounds=tuple(tuple(m.id for m in r) for r in rounds),
        left_out=planned.left_out,
        coverage=planned.coverage,
        estimated_s=round(sum(max(m.estimated_s for m in r) for r in rounds), 1),
    )


def plan_rounds(
    topology: Topology,
    fabric: Fabric,
    criteria: Iterable[Criterion],
    suites: Sequence[str],
    options: Mapping[str, Scalar] | None = None,
) -> Planned:
    """As `make_plan`, with the same errors, without a measurement of each pair."""
    if not suites:
        raise PlanError(f"no suite selected; choose from {', '.join(SUITES)}")
    for suite in suites:
        if suite not in SUITES:
            raise PlanError(f"unknown suite {suite!r}; choose from {', '.join(SUITES)}")
    given = {k: v for k, v in (options or {}).items() if v is not None}
    words = {key: value for key, value in given.items() if key in WORDS and isinstance(value, str)}
    for key, value in given.items():
        if key in words:
            continue
        if key not in OPTIONS:
            raise PlanError(f"unknown option {key!r}; known: {', '.join((*OPTIONS, *WORDS))}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise PlanError(f"option {key}: {value!r} is no whole number of at least 1 ({OPTIONS[key]})")
        if key == "minutes" and value > burn_in_plan.MOST_MINUTES:
            raise PlanError(f"option minutes: {value} is more than {burn_in_plan.MOST_MINUTES}, a week")
    without = tuple(filter(None, words.pop(WITHOUT, "").split(",")))
    if words and "training" not in suites:
        raise PlanError(
            "networks, batches, GPUs and number formats are chosen for suite training; add --suite training"
        )
    beyond = [s for s in suites if topology.here is not None and s not in ALONE]
    if beyond:
        raise PlanError(f"one machine by itself cannot do suite {beyond[0]}; it can do {', '.join(ALONE)}")
    request = Request(
        topology=topology,
        fabric=fabric,
        criteria=tuple(
            c
            for c in criteria
            if c.id not in without and c.no_probe is None and (c.applies is None or c.applies.to(fabric))
        ),
        options={k: int(v) for k, v in given.items() if isinstance(v, int)},
        words=words,
    )
    chosen = [s for s in SUITES if s in suites]  # preflight first, whatever the order asked for
    parts = [(suite, SUITES[suite](request)) for suite in chosen]
    some = any(part.rounds for _, part in parts)
    for suite, part in parts:
        if not part.rounds and not (some and part.excused):
            why = "; ".join(left.why for left in part.left_out) or "no criterion of it applies to this fabric"
            raise PlanError(f"suite {suite} would measure nothing: {why}; correct that or leave the suite out")
    rounds = [r for _, part in parts for r in part.rounds]
    if "preflight" in chosen and len(chosen) > 1:
        rounds += node_plan.closing(request)
    return Planned(
        suites=tuple(chosen),
        rounds=tuple(rounds),
        left_out=(
            *dict.fromkeys(left for _, part in parts for left in part.left_out),
            *([LeftOut(why="left out of this run by --without", criteria=without)] if without else []),
        ),
        coverage=tuple(dict.fromkeys(one for _, part in parts for one in part.coverage)),
    )
