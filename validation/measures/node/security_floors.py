"""Judging the versions of a node's stack against the security floors that the criterion carries."""

from __future__ import annotations

import datetime

from validation.base.counting import be, number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.model import Bound, Compared, Judgement, ReasonCode, VerdictName
from validation.model.node_facts import NodeFacts
from validation.rules.criterion import Criterion
from validation.rules.floors import Component, Floors, numbers

OWN_PACKAGES = ("docker-ce", "moby-engine")
"""Packages of Docker whose maker raises the version with each fix."""


@method("security-floors", "versions in the facts against the criterion's security floors")
def judge_security_floors(case: Case, criterion: Criterion) -> list[Judgement]:
    """Every node. What it does not have needs no fixes; what cannot be read, or has no floor, withholds the pass."""
    floors, judged = criterion.bound.floors, []
    for measurement in case.serving(criterion):
        name = measurement.nodes[0]
        facts = facts_for(case, criterion, name, measurement.id, NodeFacts, None)
        if isinstance(facts, Judgement) or floors is None:
            judged += [facts] if isinstance(facts, Judgement) else []
            continue
        judged.append(_judge(case, criterion, name, facts, measurement.id, floors))
    return judged


def old_floors(case: Case, day: datetime.date | None) -> list[str]:
    """In words, which floors that were applied were old on the day of the run: a note, which changes no verdict."""
    applied = [c for c in case.criteria if case.serving(c)]
    said = [(c.id, c.bound.floors.remark(day)) for c in applied if c.bound.floors is not None]
    return [f"{id_}: {remark}" for id_, remark in said if remark]


def _judge(case: Case, criterion: Criterion, name: str, facts: NodeFacts, id_: str, floors: Floors) -> Judgement:
    below: list[str] = []
    unknown: list[str] = []
    good: list[str] = []
    parts = []
    for key, component in floors.components.items():
        said, floor, where = _component(key, component, facts)
        {"below": below, "unknown": unknown, "good": good}.get(where, []).append(said)
        if where:
            equal = {"below": False, "good": True}.get(where)
            parts.append(Compared(key=key, declared=floor, found=_found(key, facts), equal=equal))
    verdict, code, why = _verdict(case, criterion, below, unknown, good)
    bound = Bound(
        metric="security_floors",
        unit="",
        equal="; ".join(f"{p.key} {p.declared}" for p in parts if p.declared) or None,
        derivation=(f"advisories up to {floors.as_of}", *floors.sources),
        source=criterion.source,
    )
    text = "; ".join([*below, *unknown, *good]) or None
    judged = judgement(criterion, name, verdict, code, why, [id_], text=text, bound=bound)
    return judged.model_copy(update={"compared": tuple(parts)})


def _verdict(
    case: Case, criterion: Criterion, below: list[str], unknown: list[str], good: list[str]
) -> tuple[VerdictName, ReasonCode, str]:
    if case.virtual and (below or unknown or good):
        return "not-measured", "virtual", f"{criterion.rehearsal.why}: {'; '.join([*below, *unknown, *good])}"
    if below:
        return "fail", "below-floor", "; ".join(below)
    if unknown:
        return "not-measured", "missing-metric", f"not judged because {'; '.join(unknown)}"
    if good:
        return "pass", "within-bounds", "; ".join(good)
    return "not-applicable", "not-applicable", "nothing that has a security floor is installed here"


def _found(key: str, facts: NodeFacts) -> str | None:
    """The version to judge: of the driver that of the module that is loaded, if it is an older one than the package's.

    A machine that others provisioned, a container among them, may have the module alone. Of Docker that of the package
    where the engine does not answer: it may be started any time.
    """
    if key == "docker":
        answered = facts.version(key)
        return facts.docker_package if answered == "" and facts.docker_package else answered
    if key != "driver":
        return facts.runc if key == "runc" else facts.version(key)
    known = [text for text in (facts.driver_loaded, facts.driver) if text]
    return min(known, key=lambda text: (numbers(text.rpartition(" ")[2]) or ())[:3], default=facts.driver)


def _component(key: str, component: Component, facts: NodeFacts) -> tuple[str, str | None, str]:
    """(in words, its floor, `below`, `unknown` or `good`); `""` last where there is nothing to judge."""
    title, found = component.title, _found(key, facts)
    other = component.kernel_flavour and not facts.kernel.endswith(f"-{component.kernel_flavour}")
    if (component.os and component.os != facts.os) or other or (key == "runc" and not _found("docker", facts)):
        return "", None, ""
    if found is None or (key == "runc" and not found):
        return f"the facts say nothing of {title}", None, "unknown"
    if not found:
        if key == "driver" and facts.gpu_count:
            return (
                f"{number_of(facts.gpu_count, 'GPU')} {be(facts.gpu_count)} there, and "
                f"the version of {title} is unknown",
                None,
                "unknown",
            )
        return "", None, ""
    if component.rebuilt and not facts.docker_package:
        return f"{title} {found}: the facts do not say whose package Docker is", None, "unknown"
    if component.rebuilt and not (facts.docker_package or "").startswith(OWN_PACKAGES):
        why = "is the distribution's, which fixes it without a new version: its own security notices tell"
        return f"{title} {found} {why}", None, "unknown"
    version = numbers(found.rpartition(" ")[2])
    if version is None:
        return f"{title} {found!r} is no version that can be compared", None, "unknown"
    floor = component.of(version)
    if floor is None:
        return f"no security floor is known of {title} {found}, of a line after all that are known", None, "unknown"
    if isinstance(floor, str):
        return f"{title} {found}: {floor}", None, "below"
    if not floor.reached(version):
        return f"{title} {found} is below {floor.floor} ({floor.advisory}, {floor.date})", floor.floor, "below"
    return f"{title} {found} has {floor.floor}", floor.floor, "good"
