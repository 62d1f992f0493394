"""Storage beside the network test: from what each node did to what both had together, and how it is judged. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.judging.values import against
from validation.kinds.parsing import ParseError, count, number, short
from validation.measures.storage.facts import StorageBeside, StorageTogetherFacts
from validation.measures.storage.plan import declared
from validation.model import Bound, Judgement, Measurement, Subject
from validation.rules.criterion import Criterion

MOST_GB_S = 1e5
Op = tuple[dict[str, Any], list[float]]


def row(node: str, raw: Mapping[str, Any], op: Op) -> dict[str, Any]:
    """What a node moved; `op`: what fio says of its read meanwhile. ParseError where that is no rate."""
    what = f"storage: {node}: beside the network"
    found: dict[str, Any] = {"node": node, "error": short(str(op[0].get("error", "")))}
    late: list[str] = []
    for name in ("alone", "both"):
        part = raw[name]
        late += part["late"]
        if part["error"]:
            found["error"] = found["error"] or short(str(part["error"]))
            continue
        rate = count(part["bytes"], what) / number(part["seconds"], what)
        if not 0 < rate < MOST_GB_S * 1e9:
            raise ParseError(f"{what}: {rate:g} bytes a second")
        found[f"net_{name}"] = rate
    return {**found, "read_both": float(op[0].get("bytes_per_s", 0.0)), "late": tuple(dict.fromkeys(late))}


def _why_not(facts: StorageTogetherFacts) -> list[str]:
    rows: dict[str, StorageBeside] = {one.node: one for one in facts.beside}
    why = []
    for node in facts.nodes:
        mine = rows.get(node.node)
        if mine is None or mine.error or node.op("read") is None:
            why.append(f"{node.node}: {(mine.error if mine else '') or node.unmeasured or 'was not measured'}")
    return why + [f"{who} did not begin with the others" for one in facts.beside for who in one.late]


@method("storage-beside", "what storage and network keep of their rates where all nodes use both", figures=True)
def judge_beside(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each storage that nodes share."""
    return [_one(case, criterion, m) for m in case.serving(criterion)]


def _one(case: Case, criterion: Criterion, m: Measurement) -> Judgement:
    about = Subject(kind="cluster", op=str(m.params["name"]))
    facts = facts_for(case, criterion, about, m.id, StorageTogetherFacts, None)
    if isinstance(facts, Judgement):
        return facts
    if why := list(dict.fromkeys(_why_not(facts))):
        return judgement(criterion, about, "not-measured", "missing-metric", "; ".join(why[:4]), [m.id])
    read = sum(op.bytes_per_s for node in facts.nodes if (op := node.op("read")) is not None)
    text, share = words(read, facts.beside)
    summary = Summary(share, 0.0, share, share, 1)
    storage = declared(case.topology.node(m.nodes[0]), facts.storage)
    if storage.beside_share is None:
        reason = f"recorded, not judged: the inventory declares no beside_share of {storage.name}; {text}"
        return judgement(criterion, about, "not-applicable", "reported", reason, [m.id], summary=summary, text=text)
    line = f"floor = {storage.beside_share:g}: beside_share of {storage.name} in the inventory"
    bound = Bound(metric=criterion.metric or "", unit="share", floor=storage.beside_share, derivation=(line,),
                  source=criterion.source)  # fmt: skip
    found = against(criterion, about, [m.id], summary, bound)
    return found.model_copy(update={"text": text, "reason": f"{found.reason}; {text}"})


def words(read: float, beside: Sequence[StorageBeside]) -> tuple[str, float]:
    """What both had together, and the smaller of the two shares that were kept."""
    both, net, alone = (sum(getattr(one, name) for one in beside) for name in ("read_both", "net_both", "net_alone"))
    kept = both / read, net / alone
    text = f"{number_of(len(beside), 'node')} together: storage {both / 1e9:.4g} GB/s, {kept[0]:.2f} of the "
    text += f"{read / 1e9:.4g} without the network; network {net / 1e9:.4g} GB/s, {kept[1]:.2f} of the "
    return f"{text}{alone / 1e9:.4g} without the storage; both {(both + net) / 1e9:.4g} GB/s", min(kept)
