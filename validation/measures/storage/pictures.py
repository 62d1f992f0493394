"""Pictures of a training read from a storage: from what each process did to rates, and how they are judged. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.judging.values import against
from validation.kinds.parsing import ParseError, count, number
from validation.measures.storage.facts import StorageFacts
from validation.measures.storage.plan import declared
from validation.model import Bound, Judgement, Subject
from validation.probes.storage_pictures import PASS_S, PASSES
from validation.rules.criterion import Criterion

COLD = 0.9
"""So much of what was read has to have come from the storage, else a cache was measured. Project default."""
LATE_S = 5.0


def rows(raw: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of each pass what all processes did together; ParseError where they contradict themselves."""
    if not raw or raw["error"]:
        return []
    made = int(count(raw["count"], "storage: pictures"))
    size = int(count(raw["bytes"], "storage: pictures: bytes"))
    found = []
    for name in PASSES:
        what, workers = f"storage: pictures: {name}", raw[name]["workers"]
        if not isinstance(workers, list) or len(workers) != raw["processes"] or not 0 < len(workers) <= made <= size:
            raise ParseError(f"{what}: not every one of {raw['processes']} processes reports")
        done = [int(count(one["count"], what)) for one in workers]
        took = [number(one["seconds"], what) for one in workers]
        if not all(done) or max(took) > PASS_S + LATE_S:
            raise ParseError(f"{what}: a process read nothing, or for {max(took):g} s")
        found.append(
            {
                "phase": name,
                "count": sum(done),
                "per_s": sum(some / seconds for some, seconds in zip(done, took, strict=True)),
                "bytes": sum(int(count(one["bytes"], what)) for one in workers),
                "from_storage": sum(int(count(one["from_storage"], what)) for one in workers),
                "processes": len(workers),
            }
        )
    return found


def why_none(facts: StorageFacts) -> str:
    """Why there is no figure, in words."""
    node = facts.node
    return f"{node.node}: {node.pictures_error or node.unmeasured or 'pictures were not measured'}"


@method("storage-pictures", "how many pictures a second the training's loader reads from a storage", figures=True)
def judge_pictures(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each node and storage."""
    judged = []
    for m in case.serving(criterion):
        about = Subject.node(m.nodes[0], str(m.params["name"]))
        facts = facts_for(case, criterion, about, m.id, StorageFacts, None)
        if isinstance(facts, Judgement):
            judged.append(facts)
            continue
        passes = {one.phase: one for one in facts.node.pictures}
        if len(passes) != len(PASSES):
            judged.append(judgement(criterion, about, "not-measured", "missing-metric", why_none(facts), [m.id]))
            continue
        read, decoded = passes["read"], passes["decoded"]
        by = number_of(read.processes, "process", "processes")
        text = f"{decoded.per_s:.4g} pictures a second read and decoded by {by}"
        text += f", {read.per_s:.4g} read alone ({facts.node.pictures_kind})"
        cached = next((one for one in (read, decoded) if one.from_storage < COLD * one.bytes), None)
        if cached is not None:
            came = f"{cached.from_storage / cached.bytes:.0%} of the bytes came from the storage, the rest from a cache"
            why = f"{came} of the node; {text}"
            judged.append(judgement(criterion, about, "not-measured", "missing-metric", why, [m.id], text=text))
            continue
        value = decoded.per_s
        summary = Summary(value, 0.0, value, value, 1)
        storage = declared(case.topology.node(m.nodes[0]), facts.storage)
        if storage.images_per_s is None:
            why = f"recorded, not judged: the inventory declares no images_per_s of {storage.name}; {text}"
            verdict: Literal["not-applicable"] = "not-applicable"
            judged.append(judgement(criterion, about, verdict, "reported", why, [m.id], summary=summary, text=text))
            continue
        line = f"floor = {storage.images_per_s:g} 1/s: images_per_s of {storage.name} in the inventory"
        bound = Bound(metric=criterion.metric or "", unit="1/s", floor=storage.images_per_s, derivation=(line,),
                      source=criterion.source)  # fmt: skip
        found = against(criterion, about, [m.id], summary, bound)
        judged.append(found.model_copy(update={"text": text, "reason": f"{found.reason}; {text}"}))
    return judged
