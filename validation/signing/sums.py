"""The sum of units: several signed runs of one site, each of other nodes, on one page. Pure but for reading the runs.

A sum measures nothing. It says which runs it is of, by the hash of each manifest, and what none of them covers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from validation.base.counting import be, number_of
from validation.model import Model, SignOff, VerdictDoc
from validation.model.listed_parts import ServerParts
from validation.model.load import ConfigError
from validation.model.points import PointState

SCHEMA = "elastic-ai-sum/1"


class SumSigner(Model):
    """Who signed a unit, when, with which key."""

    name: str
    company: str
    time: str
    key: str


class SumUnit(Model):
    """A run of a sum. `unit`: its group of the inventory, None where none was named."""

    run: str
    unit: str | None
    day: str
    nodes: tuple[str, ...]
    profile: str
    headline: str
    passed: int
    waived: tuple[str, ...]
    not_measured: tuple[str, ...]
    points: tuple[PointState, ...]
    last_day: str
    signers: tuple[SumSigner, ...]
    manifest_sha256: str


class SumDoc(Model):
    """sum.json. `last_day`: the first of the units'. `not_covered`: what no unit covers, a sentence each."""

    format: str = SCHEMA
    site: str
    fabric: str
    sign_off: SignOff
    toolkit: str
    rules_sha256: str
    units: tuple[SumUnit, ...]
    nodes: int
    last_day: str
    not_covered: tuple[str, ...]


@dataclass(frozen=True)
class Unit:
    """A run that is to be summed up: what was found of it when it was verified. `unchecked`: what could not be checked
    on this machine.
    """

    path: str
    site: str
    fabric: str
    toolkit: str
    rules_sha256: str
    answer: str
    why: str
    verdict: VerdictDoc
    of: SumUnit
    servers: tuple[ServerParts, ...]
    unchecked: tuple[str, ...] = ()
    other_rules: tuple[str, ...] = ()
    expired: bool = False


def sum_of(units: Sequence[Unit], declared: Sequence[str] | None, again: bool = False) -> SumDoc:
    """The sum; `declared`: the nodes of the site's inventory, None where none was named. `again`: one that was signed
    is added up once more, which its last day does not hinder. ConfigError, one sentence with the runs' names, where
    these runs make up no sum.
    """
    for words in _refusals(units, again):
        raise ConfigError(words)
    ordered = sorted(units, key=lambda one: one.of.run)
    first = ordered[0]
    return SumDoc(
        site=first.site,
        fabric=first.fabric,
        sign_off=first.verdict.sign_off,
        toolkit=first.toolkit,
        rules_sha256=first.rules_sha256,
        units=tuple(one.of for one in ordered),
        nodes=sum(len(one.of.nodes) for one in ordered),
        last_day=min(one.of.last_day for one in ordered),
        not_covered=tuple(_not_covered(ordered, declared)),
    )


@dataclass(frozen=True)
class Again:
    """A signed sum beside one that was made again. `fault`: it is not the sum of these runs. `open`: what of it follows
    from the inventory and the machine that it was made with, and is otherwise with those of today.
    """

    fault: bool = False
    open: tuple[str, ...] = ()


def beside(signed: SumDoc, units: Sequence[Unit], declared: Sequence[str] | None) -> Again:
    """What the runs alone come to has to be the same; what else is said of them may be another inventory's."""
    made = sum_of(units, declared, True)
    nothing = {"not_covered": ()}
    if signed.model_copy(update=nothing) != made.model_copy(update=nothing):
        return Again(fault=True)
    whole = [replace(one, unchecked=()) for one in units]
    every = [node for one in units for node in one.of.nodes]
    alone, with_all = (sum_of(whole, nodes, True).not_covered for nodes in (None, every))
    if any(line not in signed.not_covered for line in alone if line in with_all):
        return Again(fault=True)
    there, here = set(signed.not_covered), set(made.not_covered)
    return Again(
        open=(
            *(f"on the page, and not found here: {line}" for line in signed.not_covered if line not in here),
            *(f"found here, and not on the page: {line}" for line in made.not_covered if line not in there),
        )
    )


def _refusals(units: Sequence[Unit], again: bool) -> Iterator[str]:
    if len(units) < 2:
        yield "a sum is of two runs or more; name the runs of the units"
    for one in units:
        if one.answer == "not-signed":
            yield f"{one.path}: nobody has signed it; sign it first: toolkit sign"
        if one.expired and not again:
            yield f"{one.path}: its last day, {one.of.last_day}, has passed; a sum is of papers that hold"
        if one.answer not in ("intact", "verified", "other-rules", "not-checked", "expired"):
            yield f"{one.path}: {one.why}; a sum is of runs that are as they were signed: toolkit verify names all"
        if one.other_rules:
            yield f"{one.path}: was judged by rules that no release has ({one.other_rules[0]}); a sum takes none"
        if not one.of.last_day:
            yield f"{one.path}: was signed by a release that named no last day; sign a copy of it again"
        if one.verdict.sign_off not in ("ACCEPTED", "REHEARSAL") or one.verdict.outcome != "passed":
            yield f"{one.path}: is {one.verdict.line.split(':')[0]}, {one.verdict.outcome}; a sum adds up what passed"
    for one, other in combinations(units, 2):
        yield from _pair(one, other)


def _pair(one: Unit, other: Unit) -> Iterator[str]:
    both = f"{one.path} and {other.path}"
    if one.of.run == other.of.run:
        yield f"{both}: are the same run"
    theirs_too = {node.casefold() for node in other.of.nodes}
    shared = sorted(node for node in one.of.nodes if node.casefold() in theirs_too)
    if shared:
        yield f"{both}: share {number_of(len(shared), 'node')}: {', '.join(shared[:8])}; each node is in one unit"
    tags = {s.service_tag.casefold(): s.node for s in one.servers if s.service_tag}
    for server in other.servers:
        if server.service_tag and server.service_tag.casefold() in tags:
            twin = tags[server.service_tag.casefold()]
            yield f"{both}: share a server: {server.node} has service tag {server.service_tag}, as {twin} has"
    for what, mine, theirs in (
        ("site", one.site, other.site),
        ("fabric", one.fabric, other.fabric),
        ("release of the toolkit", one.toolkit, other.toolkit),
        ("sign-off", one.verdict.sign_off, other.verdict.sign_off),
        ("acceptance profile", one.of.profile, other.of.profile),
        ("criteria and rules (sha256)", one.rules_sha256, other.rules_sha256),
    ):
        if mine != theirs:
            yield f"{both}: differ in {what}: {mine} and {theirs}; measure both by the same"


def _not_covered(units: Sequence[Unit], declared: Sequence[str] | None) -> Iterator[str]:
    across = sum(len(a.of.nodes) * len(b.of.nodes) for a, b in combinations(units, 2))
    yield (
        f"Between units nothing was measured: {number_of(across, 'pair')} of nodes of two units, and no job, "
        "collective or congestion over more than one unit."
    )
    days = sorted({one.of.day for one in units})
    if days[1:]:
        yield f"The units were measured on {number_of(len(days), 'day')} ({days[0]} to {days[-1]}), never at once."
    if declared is None:
        yield "Whether the site has nodes in no unit is not known: no inventory was named."
    else:
        known = {node for one in units for node in one.of.nodes}
        rest = [node for node in declared if node not in known]
        if rest:
            shown = ", ".join(rest[:20]) + (f" and {len(rest) - 20} more" if rest[20:] else "")
            yield f"{number_of(len(rest), 'node')} of the inventory {be(len(rest))} in no unit: {shown}."
    waived = sorted({id_ for one in units for id_ in one.of.waived})
    if waived:
        yield f"Waived in a unit at least: {', '.join(waived)}."
    bare = sorted({id_ for one in units for id_ in one.of.not_measured})
    if bare:
        shown = ", ".join(bare[:20]) + (f" and {len(bare) - 20} more" if bare[20:] else "")
        yield f"Not measured in a unit at least: {shown}."
    own = {point.id for one in units for point in one.of.points if not point.elsewhere}
    held = [
        f"{point.id} of {one.of.run}"
        for one in units
        for point in one.of.points
        if point.state == "open" and not (point.elsewhere and point.id in own)
    ]
    if held:
        yield f"Open points of the punch list: {', '.join(held[:20])}{' and more' if held[20:] else ''}."
    for one in units:
        if one.unchecked:
            yield f"{one.of.run}: {number_of(len(one.unchecked), 'thing')} could not be checked on this machine."
