"""Facts of kind soak-storage: what was written to a storage and read back while the node burned in, and its judge."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.kinds.parsing import Parsed, ParseError, as_facts, count, expect, json_object, number, real, short
from validation.kinds.record import Kind
from validation.measures.compute.beside import idle
from validation.measures.compute.segments import together
from validation.measures.storage.kinds import call_for
from validation.model import Job, Judgement, Measurement, Sample, Subject, Topology
from validation.model.base import Model
from validation.model.facts import Count, Facts, Positive
from validation.probes import ProbeDoc
from validation.rules.criterion import Criterion

_WHAT = "soak-storage"
AT_ONCE = 0.5  # share of its time in which the node burned in; the last pass may take long. Project default
BLOCK = 1 << 20  # of the probe; each is compared as a whole


class SoakPass(Model):
    """A file that was written and read. `wrong` blocks; `error` where it came to no end, with `bytes` 0."""

    at_s: float = Field(ge=0, allow_inf_nan=False)
    bytes: Count
    write_s: float = Field(ge=0, allow_inf_nan=False)
    read_s: float = Field(ge=0, allow_inf_nan=False)
    wrong: Count
    error: str = ""


class SoakStorageFacts(Facts):
    """`seconds` were asked for, `took_s` went by."""

    type: Literal["soak-storage"] = "soak-storage"
    name: str
    filesystem: str
    seconds: Positive
    took_s: Positive
    passes: tuple[SoakPass, ...] = Field(min_length=1)

    @property
    def wrong(self) -> int:
        """Blocks that were not what was written."""
        return sum(one.wrong for one in self.passes)

    @property
    def lost(self) -> list[SoakPass]:
        """Passes that failed."""
        return [one for one in self.passes if one.error]

    @property
    def words(self) -> str:
        """What was moved."""
        whole = [one for one in self.passes if not one.error]
        text = f"{sum(one.bytes for one in whole) / 1e9:.4g} GB written and read back in {len(whole)} passes"
        if whole:
            rates = [statistics.median(one.bytes / getattr(one, key) / 1e9 for one in whole if getattr(one, key))
                     for key in ("write_s", "read_s")]  # fmt: skip
            text += f", {rates[0]:.3g} GB/s written and {rates[1]:.3g} read"
        return text


def parse(doc: ProbeDoc, params: Mapping[str, Any]) -> Parsed:
    """`soak_wrong` blocks of each pass that came to its end."""
    report: Any = json_object(doc["stdout"], f"{_WHAT}: the report")
    for key in ("name", "seconds"):
        expect(params, key, report[key], f"{_WHAT}: {key}")
    took = number(report["took_s"], f"{_WHAT}: took_s")
    if took < number(report["seconds"], f"{_WHAT}: seconds"):
        raise ParseError(f"{_WHAT}: {took:g} s of the {report['seconds']:g} s that were asked for")
    size, passes, last = int(params.get("size_mib", 0)) * BLOCK, [], -1.0
    for one in report["passes"]:
        at, error = real(one["at_s"], f"{_WHAT}: begin of a pass"), short(str(one["error"]))
        moved, wrong = (int(count(one[key], f"{_WHAT}: {key} of a pass")) for key in ("bytes", "wrong"))
        times = {key: real(one[key], f"{_WHAT}: {key} of a pass") for key in ("write_s", "read_s")}
        if not last < at <= took or sum(times.values()) > took:
            raise ParseError(f"{_WHAT}: a pass at {at:g} s, after one at {last:g} s, of {took:g} s")
        if (moved != 0 or wrong != 0) if error else (moved != (size or moved) or not moved or wrong * BLOCK > moved):
            raise ParseError(f"{_WHAT}: a pass at {at:g} s of {number_of(moved, 'byte')}, {wrong} blocks of it wrong")
        if not error and not all(value > 0 for value in times.values()):
            raise ParseError(f"{_WHAT}: a pass at {at:g} s that took no time")
        last = at
        passes.append({"at_s": at, "bytes": moved, **times, "wrong": wrong, "error": error})
    if len(passes) != count(doc["facts"]["passes"], f"{_WHAT}: passes"):
        raise ParseError(f"{_WHAT}: {len(passes)} passes, {doc['facts']['passes']} were counted")
    raw = {"name": report["name"], "filesystem": str(report["place"]["filesystem"]), "seconds": report["seconds"]}
    found = as_facts(SoakStorageFacts, {**raw, "took_s": took, "passes": passes}, _WHAT)
    return [Sample(metric="soak_wrong", value=one.wrong, unit="count") for one in found.passes if not one.error], found


def _job(m: Measurement, topology: Topology) -> Job:
    return Job(node=m.nodes[0], probe=call_for(m, topology, m.nodes[0]))


KINDS = (
    Kind(
        name="soak-storage",
        title="Storage beside the burn-in",
        measures="Writes a file to each declared storage, reads it back and compares every block, while the burn-in "
        "runs.",
        tool="files by the probe, flushed and read past the page cache",
        more="explanation/measuring/burn-in.md",
        job=_job,
        parse=parse,
        repeat_by="probe",
        once=True,
    ),
)


@method("burn-storage", "what was written to a storage beside the burn-in and read back", counts="storages")
def judge_soak_storage(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each storage of each node."""
    return together(((m, _one(case, criterion, m)) for m in case.serving(criterion)), case.attempts)


def _one(case: Case, criterion: Criterion, m: Measurement) -> Judgement:
    about = Subject.node(m.nodes[0], f"storage {m.params['name']}")
    facts = facts_for(case, criterion, about, m.id, SoakStorageFacts, None)
    if isinstance(facts, Judgement):
        return facts
    wrong = [f"{number_of(facts.wrong, 'block')} of 1 MiB read back wrong"] if facts.wrong else []
    if facts.lost:
        first = facts.lost[0]
        wrong.append(
            f"{len(facts.lost)} of {len(facts.passes)} passes failed, the first after "
            f"{first.at_s / 60:.1f} minutes: {first.error}"
        )
    text = facts.words
    if wrong:
        return judgement(criterion, about, "fail", "not-working", f"{'; '.join(wrong)}; {text}", [m.id], text=text)
    if alone := idle(case, m, "storage", AT_ONCE):
        return judgement(criterion, about, "not-measured", "missing-result", f"{alone}; {text}", [m.id], text=text)
    return judgement(criterion, about, "pass", "within-bounds", text, [m.id], text=text)
