"""Accepted runs of a site become the bounds of the next: each figure's own level, and what runs differ by. Pure.

A bound of the reference architecture says what is good enough. This one says what this pair, port or node has shown
that it can, and is never in place of the other: both hold. Figures differ from run to run by more than the samples of
one run show, and that is what the runs of a baseline are for. The same subject's values scatter around their mean; over
all equals of a criterion that gives one spread, and with Student's t a bound that a further run of an unchanged site
passes with a chance of ALPHA over all figures of the baseline together (Bonferroni).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean
from typing import Any

import yaml

from validation.analysis.chance import quantile
from validation.base.errors import ConfigError
from validation.judging.methods import figures_of
from validation.model import Topology, VerdictDoc
from validation.model.judgement import Sort
from validation.model.load import Source, load_yaml
from validation.rules.criterion import Criterion
from validation.rules.release import release
from validation.rules.since import BaselineOf
from validation.run.read import Run

NAME = "baseline.yml"
"""File of a baseline, beside an inventory and among the criteria of a run."""

ALPHA = 0.01
"""Chance that a further run of an unchanged site falls behind any bound of the baseline. Project default, as that of a
comparison."""

LEAST_MARGIN = 0.03
"""A bound is at least this share from what was reached: smaller changes are called small in a comparison, too. Project
default."""

LEAST_FREEDOM = 3
"""Degrees of freedom of a spread: values beyond the first of each subject, over all equals. With fewer the bound would
be anywhere. Project default."""

PREFIX = "bl."


@dataclass(frozen=True)
class Made:
    """A baseline as text, with what it is of; how many figures it bounds; and per criterion why some have no bound."""

    text: str
    of: BaselineOf
    figures: int
    left_out: dict[str, str]


@dataclass(frozen=True)
class _Group:
    """Equals of one criterion: subject -> its values, one of each run."""

    values: Mapping[str, Sequence[float]]

    @property
    def freedom(self) -> int:
        return sum(len(v) - 1 for v in self.values.values())

    @property
    def spread(self) -> float:
        squares = sum((x / fmean(v) - 1) ** 2 for v in self.values.values() for x in v)
        return sqrt(squares / self.freedom)


def baseline_of(runs: Sequence[tuple[Run, VerdictDoc]]) -> Made:
    """The baseline of at least two runs, each with its verdict, which the caller has held against the run's files.

    ConfigError, one line, for a run that was not accepted (or, of virtual nodes, did not pass as a rehearsal), for runs
    that do not belong together, and where nothing would be bounded.
    """
    _refuse(runs)
    newest, verdict = max(runs, key=lambda pair: (pair[0].info.created, pair[0].info.run))
    criteria = {c.id: c for c in newest.criteria}
    groups, left_out = _groups(runs, criteria)
    figures = sum(len(group.values) for _, group in groups)
    if not figures:
        why = "; ".join(f"{id_}: {words}" for id_, words in left_out.items()) or "no figure passed in two of these runs"
        raise ConfigError(f"these runs bound nothing: {why}; give more runs of this site")
    link = newest.topology.lab_link
    of = BaselineOf(
        site=newest.info.site,
        fabric=newest.fabric.name,
        rehearsal=verdict.sign_off == "REHEARSAL",
        lab_gbps=link.rate_gbps if link else None,
        runs=tuple(sorted(run.info.run for run, _ in runs)),
        toolkit_version=release(),
    )
    entries = []
    for id_ in dict.fromkeys(id_ for id_, _ in groups):
        mine = [group for other, group in groups if other == id_]
        levels, spread, wide = _levels(criteria[id_], mine, figures)
        if wide:
            left_out[id_] = f"runs differ too much for a bound of {wide} of its figures"
        if levels:
            entries.append(_entry(criteria[id_], of, levels, spread))
    if not entries:
        raise ConfigError("these runs differ too much from each other to bound anything; look at toolkit compare")
    bounded = sum(len(entry["bound"]["since"]["levels"]) for entry in entries)
    return Made(_text(of, entries), of, bounded, left_out)


def read_baseline(source: Source) -> BaselineOf:
    """What a baseline's file is of; ConfigError with file and line where it is none."""
    from validation.run.catalogue import CriteriaFile  # only here: it reads bounds, of which this is a part

    found = load_yaml(source, CriteriaFile).baseline
    if found is None:
        raise ConfigError(f"{source.path}:1: is no baseline; make one with: toolkit baseline RUN RUN --out {NAME}")
    return found


def unfit(of: BaselineOf, topology: Topology, fabric: str) -> str:
    """Why a baseline says nothing of these nodes over this fabric; "" where it does."""
    if of.fabric != fabric:
        return f"is of fabric {of.fabric}, not of {fabric}"
    if of.site != topology.site:
        return f"is of site {of.site}, not of {topology.site}"
    if of.rehearsal != topology.virtual:
        return f"is of {'rehearsals on virtual nodes' if of.rehearsal else 'hardware'}, which these nodes are not"
    link = topology.lab_link.rate_gbps if topology.lab_link else None
    if of.lab_gbps != link:
        return f"is of a lab with links of {of.lab_gbps or 0:g} Gbit/s, and this one's have {link or 0:g}"
    return ""


def _refuse(runs: Sequence[tuple[Run, VerdictDoc]]) -> None:
    if len(runs) < 2:
        raise ConfigError("one run does not show what runs differ by; give two at least, better five")
    named = Counter(run.info.run for run, _ in runs)
    twice = [name for name, count in named.items() if count > 1]
    if twice:
        raise ConfigError(f"{twice[0]}: is there twice; each run counts once")
    for run, verdict in runs:
        fine = verdict.sign_off == "ACCEPTED" or (verdict.sign_off == "REHEARSAL" and verdict.outcome == "passed")
        if not fine:
            raise ConfigError(
                f"{run.folder}: is {verdict.sign_off}, {verdict.outcome}: only accepted runs, or rehearsals that "
                "passed, become bounds"
            )
    (first, said), *others = runs
    for run, verdict in others:
        for what, one, other in (
            ("site", first.info.site, run.info.site),
            ("fabric", first.fabric.name, run.fabric.name),
            ("sign-off", said.sign_off, verdict.sign_off),
            ("lab link", first.topology.lab_link, run.topology.lab_link),
        ):
            if one != other:
                raise ConfigError(
                    f"{first.info.run} and {run.info.run} do not belong together: {what} {_said(one)} and "
                    f"{_said(other)}; a baseline is of one site over one fabric"
                )


def _said(value: object) -> str:
    rate = getattr(value, "rate_gbps", None)
    return str(value) if rate is None else f"{rate:g} Gbit/s"


def _groups(
    runs: Sequence[tuple[Run, VerdictDoc]], criteria: Mapping[str, Criterion]
) -> tuple[list[tuple[str, _Group]], dict[str, str]]:
    """Equals of each criterion with figures that passed in two runs or more, and why others are left out."""
    found: dict[tuple[str, Sort], dict[str, list[float]]] = {}
    for _, verdict in runs:
        for id_, one in figures_of(verdict, criteria):
            if one.verdict == "pass" and one.value is not None:
                found.setdefault((id_, one.about.sort), {}).setdefault(one.subject, []).append(one.value)
    groups, left_out = [], {}
    for (id_, sort), subjects in found.items():
        group = _Group({subject: values for subject, values in subjects.items() if len(values) > 1})
        if group.freedom < LEAST_FREEDOM:
            things = f"{'subject' if len(group.values) == 1 else 'subjects'}{f' ({sort.words})' if sort.words else ''}"
            left_out[id_] = f"{len(group.values)} {things} in these runs do not show what runs differ by"
        else:
            groups.append((id_, group))
    return groups, left_out


def _levels(criterion: Criterion, groups: Sequence[_Group], figures: int) -> tuple[list[dict[str, Any]], float, int]:
    """Levels of a criterion, the largest spread of its groups, and how many got no bound since runs differ too much."""
    sign, levels, wide = -1 if criterion.direction == "higher" else 1, [], 0
    for group in groups:
        t = quantile(ALPHA / figures, group.freedom)
        for subject, values in group.values.items():
            margin = max(LEAST_MARGIN, t * group.spread * sqrt(1 + 1 / len(values)))
            if margin >= 1:
                wide += 1
                continue
            value = fmean(values)
            bound = float(f"{value * (1 + sign * margin):.6g}")
            levels.append({"subject": subject, "value": float(f"{value:.6g}"), "bound": bound, "runs": len(values)})
    return levels, max(group.spread for group in groups), wide


def _entry(criterion: Criterion, of: BaselineOf, levels: list[dict[str, Any]], spread: float) -> dict[str, Any]:
    runs = f"{len(of.runs)} {'rehearsals (no acceptance)' if of.rehearsal else 'accepted runs'} of {of.site}"
    entry: dict[str, Any] = {
        "id": PREFIX + criterion.id.replace(".", ""),
        "statement": f"{criterion.id} no worse than in {runs}: {criterion.statement}",
        "suite": criterion.suite,
        "scope": criterion.scope,
        "metric": criterion.metric or criterion.id,
        "unit": criterion.unit,
        "direction": criterion.direction,
        "method": "baseline",
        "kind": criterion.kind,
        "bound": {
            "kind": "baseline",
            "words": f"no worse than what runs differ by, of each subject's own level in {runs}",
            "since": {"of": criterion.id, "spread": float(f"{spread:.4g}"), "levels": levels},
        },
        "source": f"baseline: {', '.join(of.runs)}",
        "required": False,
        "remedy": f"Compare with the last good run (toolkit compare), for what was changed. {criterion.remedy}".strip(),
    }
    if criterion.applies is not None:
        entry["applies"] = criterion.applies.model_dump(mode="json")
    return entry


def _text(of: BaselineOf, entries: Sequence[dict[str, Any]]) -> str:
    head = [
        "# Made by toolkit baseline: what this site has shown that it can, as bounds beside those of the criteria.",
        "# Of rehearsals on virtual nodes: figures of a lab, of which nothing is an acceptance."
        if of.rehearsal
        else "# Of accepted runs.",
        "# toolkit validate takes it as --baseline, or where it lies beside the inventory as baseline.yml.",
    ]
    document = {"baseline": of.model_dump(mode="json"), "criteria": list(entries)}
    body = yaml.safe_dump(document, sort_keys=False, width=118, default_flow_style=None, allow_unicode=True)
    return "\n".join(head) + "\n" + body
