"""What a node adds to a site that was accepted before it came: its own acceptance, held against the site's.

A function of two verdicts and what they were made from. No I/O, no clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from validation.model import Judgement, Model, VerdictDoc
from validation.model.judgement import Sort
from validation.rules.criterion import Criterion

ADDENDUM = "addendum.json"
"""Its name in the run of the node; the manifest covers it, so that who signs the run signs it."""
SUITES = ("preflight", "as-built", "transport", "compute")
"""What one node and its peers can show. Training, remoting and operations are of the site as a whole."""
_HELD = ("pass", "waived")


class Seen(Model):
    """A figure of the node beside the accepted run's: its own worst, and their lowest and highest of the criterion."""

    criterion: str
    subject: str
    unit: str
    value: float
    accepted_low: float
    accepted_high: float
    accepted_count: int
    beyond: bool


class FactDifference(Model):
    """A fact of the node that is not as it was there; `accepted` is what most of its group had, where it is new."""

    fact: str
    accepted: str | None
    now: str | None


class Addendum(Model):
    """addendum.json. `faults` are why the node is not accepted; none of them: it is."""

    format: Literal["elastic-ai-addendum/1"] = "elastic-ai-addendum/1"
    verb: Literal["add", "replace"]
    node: str
    peers: tuple[str, ...]
    site: str
    fabric: str
    accepted_run: str
    accepted_sign_off: str
    accepted_verdict_sha256: str
    accepted_manifest_sha256: str | None
    run: str
    suites: tuple[str, ...]
    not_repeated: tuple[str, ...]
    accepted: bool
    faults: tuple[str, ...]
    figures: tuple[Seen, ...] = ()
    facts: tuple[FactDifference, ...] = ()

    @property
    def headline(self) -> str:
        """One line."""
        if self.accepted:
            return f"{self.node} holds what {self.accepted_run} was accepted with"
        return f"{self.node} is not accepted: {self.faults[0]}" + (
            f" (and {len(self.faults) - 1} more)" if len(self.faults) > 1 else ""
        )


def faults_of(
    accepted: VerdictDoc, now: VerdictDoc, catalogue: Mapping[str, Criterion], suites: Sequence[str]
) -> tuple[str, ...]:
    """Why a node's run is no acceptance: what fails in it, what is missing of it, and what passed in the accepted run
    and is not shown here, although its suite is one of `suites`, which were measured."""
    found = [f"{id_}: was planned and is missing" for id_ in now.missing]
    was = {c.id: c.verdict for c in accepted.criteria}
    alone = site_alone(now)
    for c in now.criteria:
        entry = catalogue.get(c.id)
        if c.verdict == "fail":
            found.append(f"{c.id} fails: {c.reason}")
            continue
        owed = entry is not None and entry.suite in suites and c.id not in alone
        if owed and was.get(c.id) in _HELD and c.verdict == "not-measured":
            found.append(f"{c.id} passed in {accepted.run} and is not measured here: {c.reason}")
    return tuple(found)


def site_alone(now: VerdictDoc) -> frozenset[str]:
    """Criteria that the plan for a node and its peers left out, with a reason: more nodes are needed for them."""
    return frozenset(id_ for left in now.left_out for id_ in left.criteria)


def figures_of(
    node: str, accepted: VerdictDoc, now: VerdictDoc, catalogue: Mapping[str, Criterion]
) -> tuple[Seen, ...]:
    """The node's worst figure of each criterion and sort that the accepted run has figures of too, of a kind that is
    better higher or lower. `beyond`: worse than any there."""
    there: dict[tuple[str, Sort], list[float]] = {}
    for c in accepted.criteria:
        for j in c.judgements:
            if j.value is not None:
                there.setdefault((c.id, j.about.sort), []).append(j.value)
    ours: dict[tuple[str, Sort], list[Judgement]] = {}
    for c in now.criteria:
        for j in c.judgements:
            if j.value is not None and any(end.node == node for end in j.about.ends):
                ours.setdefault((c.id, j.about.sort), []).append(j)
    found = []
    for key, mine in ours.items():
        entry, values = catalogue.get(key[0]), there.get(key, [])
        if entry is None or entry.direction not in ("higher", "lower") or not values:
            continue
        higher = entry.direction == "higher"
        worst = (min if higher else max)(mine, key=lambda j: j.value or 0.0)
        assert worst.value is not None
        found.append(
            Seen(
                criterion=entry.id,
                subject=worst.subject,
                unit=(worst.bound.unit if worst.bound else None) or entry.unit or "",
                value=worst.value,
                accepted_low=min(values),
                accepted_high=max(values),
                accepted_count=len(values),
                beyond=worst.value < min(values) if higher else worst.value > max(values),
            )
        )
    return tuple(found)


def facts_of(
    node: str, group: Iterable[str], before: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]],
    restless: Sequence[str] = ("clock_offset_s",),
) -> tuple[FactDifference, ...]:  # fmt: skip
    """Facts of a node (node -> fact -> text) that differ from its own before, else from most of its group's."""
    mine, known = now.get(node, {}), before.get(node)
    if known is None:
        others = [before[name] for name in group if name in before]
        keys = dict.fromkeys(key for facts in others for key in facts)
        known = {key: Counter(f[key] for f in others if key in f).most_common(1)[0][0] for key in keys}
    if not known or not mine:
        return ()
    return tuple(
        FactDifference(fact=key, accepted=known.get(key), now=mine.get(key))
        for key in dict.fromkeys([*mine, *known])
        if key not in restless and known.get(key) != mine.get(key)
    )
