"""Suites turn topology, fabric and criteria into a plan, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from validation.base import discovery
from validation.model import Coverage, LeftOut, Measurement, Plan, Scalar, Topology
from validation.plan import each_node
from validation.plan.offered import ALONE, DEFAULT, UNASKED
from validation.plan.request import Part, PlanError, Request, Suite
from validation.rules.criterion import Criterion
from validation.rules.fabric import Fabric

__all__ = [
    "ALONE",
    "DEFAULT",
    "SUITES",
    "UNASKED",
    "Part",
    "PlanError",
    "Planned",
    "Request",
    "make_plan",
    "numbers",
    "plan_rounds",
    "words",
]


def _found() -> list[tuple[str, Suite]]:
    modules = (each_node, *discovery.modules())
    every = [module.SUITE for module in modules if isinstance(getattr(module, "SUITE", None), Suite)]
    return [(suite.name, suite) for suite in sorted(every, key=lambda suite: suite.place)]


SUITES = discovery.Discovered(_found)
"""All suites, in the order in which they are planned."""

WITHOUT = "without"


def numbers() -> dict[str, str]:
    """Options that are whole numbers, each with what it is."""
    return {
        **{key: about for suite in SUITES.values() for key, about in suite.numbers.items()},
        "quick": "1: what each node does by itself, at its shortest",
        "anyway": "1: measures GPUs that somebody works on, too",
    }


def words() -> dict[str, str]:
    """Options that are words, each with what it is."""
    without = {WITHOUT: "criteria that are not measured in this run, with commas between them"}
    return without | {key: about for suite in SUITES.values() for key, about in suite.words.items()}


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
    """Everything that is going to be measured, in rounds. `options` holds keys of `numbers()` and of
    `words()`; None values are ignored.

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
    counted, named = numbers(), words()
    most = {key: limit for one in SUITES.values() for key, limit in one.most.items()}
    texts = {key: value for key, value in given.items() if key in named and isinstance(value, str)}
    for key, value in given.items():
        if key in texts:
            continue
        if key not in counted:
            raise PlanError(f"unknown option {key!r}; known: {', '.join((*counted, *named))}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise PlanError(f"option {key}: {value!r} is no whole number of at least 1 ({counted[key]})")
        if key in most and value > most[key][0]:
            raise PlanError(f"option {key}: {value} is more than {most[key][0]}, {most[key][1]}")
    without = tuple(filter(None, texts.pop(WITHOUT, "").split(",")))
    if texts and "training" not in suites:
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
        words=texts,
    )
    chosen = [s for s in SUITES if s in suites]  # preflight first, whatever the order asked for
    parts = [(suite, SUITES[suite].plan(request)) for suite in chosen]
    some = any(part.rounds for _, part in parts)
    for suite, part in parts:
        if not part.rounds and not (some and part.excused):
            why = "; ".join(left.why for left in part.left_out) or "no criterion of it applies to this fabric"
            raise PlanError(f"suite {suite} would measure nothing: {why}; correct that or leave the suite out")
    rounds = [r for _, part in parts for r in part.rounds]
    for suite in chosen if len(chosen) > 1 else ():
        closing = SUITES[suite].closing
        rounds += closing(request) if closing is not None else []
    return Planned(
        suites=tuple(chosen),
        rounds=tuple(rounds),
        left_out=(
            *dict.fromkeys(left for _, part in parts for left in part.left_out),
            *([LeftOut(why="left out of this run by --without", criteria=without)] if without else []),
        ),
        coverage=tuple(dict.fromkeys(one for _, part in parts for one in part.coverage)),
    )
