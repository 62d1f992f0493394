"""Which runs belong on one page: the same nodes, all of them real or all rehearsed, and one plan for each network.

Labs differ in what they shape their links to, and in what carries their nodes: that is what a rehearsed campaign
varies, so neither keeps their runs apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from validation.campaign.model import NotTogether
from validation.model import Measurement, Node, Plan
from validation.report.documents import RunDocuments
from validation.report.numbers import many
from validation.rules.fabric import FIGURES, Fabric

_SAME_NODES = "make all runs of a campaign on the same nodes"
_SAME_PLAN = "measure it again with the same suites and profile, or leave one of the two out"


def refuse_misfits(all_runs: Sequence[RunDocuments]) -> None:
    """NotTogether, one line, for the first two runs that do not fit together; it says what differs."""
    for index, new in enumerate(all_runs):
        for old in all_runs[:index]:
            found = next(_differences(old, new), None)
            if found is not None:
                what, what_to_do = found
                raise NotTogether(
                    f"{old.info.run} and {new.info.run} do not fit into one campaign: {what}; {what_to_do}"
                )


def _differences(old: RunDocuments, new: RunDocuments) -> Iterator[tuple[str, str]]:
    """What differs, and what to do about it, the most important first."""
    if old.info.run == new.info.run:
        yield "they are the same run", "name each run once"
    if old.virtual != new.virtual:
        words = ["is a rehearsal on virtual parts" if d.virtual else "ran on hardware" for d in (old, new)]
        yield (
            f"the first {words[0]}, the second {words[1]}",
            "a rehearsal proves nothing of hardware; make a page of each",
        )
    if old.constructed != new.constructed:
        yield "one is a constructed example, the other was measured", "make a page of each"
    if old.info.site != new.info.site:
        yield (
            f"site {old.info.site} against {new.info.site}",
            "make all runs of a campaign of one site; inventories of it for different fabrics are files of one folder",
        )
    yield from _nodes(old, new)
    link = new.topology.lab_link
    if old.fabric.name == new.fabric.name and old.topology.lab_link == link:
        one, two = _rules(old.fabric), _rules(new.fabric)
        for key in dict.fromkeys([*one, *two]):
            if one.get(key) != two.get(key):
                what = f"two profiles are called {new.fabric.name}: {key} is {one.get(key)} against {two.get(key)}"
                yield what, "judge both by one profile (toolkit validate --rejudge), or give one of them another name"
        over = f"both are over {new.fabric.name}, but their plans differ: "
        yield from ((over + what, _SAME_PLAN) for what in _plans(old.plan, new.plan))


def _nodes(old: RunDocuments, new: RunDocuments) -> Iterator[tuple[str, str]]:
    one, two = ({n.name: n for n in d.topology.nodes} for d in (old, new))
    gone, fresh = [n for n in one if n not in two], [n for n in two if n not in one]
    if gone or fresh:
        both = (("only the first", gone), ("only the second", fresh))
        yield "; ".join(f"{which} has {many(names)}" for which, names in both if names), _SAME_NODES
    for name, node in one.items():
        if name in two:
            for key, was, now in _parts(node, two[name], old.virtual):
                yield f"{key} of {name} is {was} against {now}", _SAME_NODES


def _parts(old: Node, new: Node, virtual: bool) -> Iterator[tuple[str, object, object]]:
    """What makes it another node. Ports and adapters are what a campaign may vary."""
    keys: list[tuple[str, object, object]] = [
        ("the groups", ", ".join(sorted(old.groups)) or "none", ", ".join(sorted(new.groups)) or "none")
    ]
    if not virtual:
        parts = ("model", "gpu_model", "gpu_count")
        keys += [(f"bom.{key}", getattr(old.bom, key), getattr(new.bom, key)) for key in parts]
    for key, was, now in keys:
        if was != now:
            yield key, "not declared" if was is None else was, "not declared" if now is None else now


def _rules(fabric: Fabric) -> dict[str, object]:
    """What of a profile decides a verdict; its words do not."""
    plain = fabric.model_dump(exclude={"title", "notes", "sources", *FIGURES})
    return {**plain, **fabric.figures()}


def _plans(old: Plan, new: Plan) -> Iterator[str]:
    if old.suites != new.suites:
        yield f"suites {', '.join(old.suites)} against {', '.join(new.suites)}"
    one, two = ({m.id: m for m in plan.measurements} for plan in (old, new))
    for words, mine, other in (("only the first", one, two), ("only the second", two, one)):
        names = [id_ for id_ in mine if id_ not in other]
        if names:
            yield f"{words} has {many(names, 3)}"
    for id_, measurement in one.items():
        if id_ in two and measurement != two[id_]:
            yield f"{id_}: {_changed(measurement, two[id_])}"


def _changed(old: Measurement, new: Measurement) -> str:
    """The first of its parameters, or else of its fields, that differs."""
    for key in dict.fromkeys([*old.params, *new.params]):
        was, now = (m.params.get(key, "not there") for m in (old, new))
        if was != now:
            return f"{key} is {was} against {now}"
    one, two = old.model_dump(), new.model_dump()
    key = next(k for k in one if one[k] != two[k])
    return f"{key} is {one[key]} against {two[key]}"
