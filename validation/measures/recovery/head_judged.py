"""The head's restart, from what its probe saw to a judgement. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from validation.analysis.stats import summarize
from validation.base.counting import number_of
from validation.judging.case import Case, facts_for, judgement
from validation.judging.methods import method
from validation.kinds.parsing import Parsed, ParseError, as_facts
from validation.measures.recovery.boots import Boot, Reading
from validation.model import Bound, Judgement, Sample
from validation.model.facts import Facts, Name, Positive
from validation.probes.recovery_head import out
from validation.rules.criterion import Criterion

GOES_ON = ("running", "completing", "completed", "suspended")
MOST_NAMED = 4


class HeadFacts(Facts):
    """One restart. `serves_s`: until Slurm answered, `settled_s`: until all nodes that got work get it
    again; None: never."""

    type: Literal["recovery-head"] = "recovery-head"
    what: Literal["head"]
    node: Name
    job: Name
    before: Reading
    boot: Boot
    serves_s: Positive | None
    settled_s: Positive | None
    jobs: dict[Name, tuple[str, str]]
    nodes: dict[Name, tuple[str, str]]

    @property
    def odd(self) -> list[str]:
        """What is not as before, in words."""
        found = [f"the head: {words}" for words in self.boot.reading.other(self.before)]
        found += [f"job {one} was {was}, is {now or 'unknown'}" for one, (was, now) in self.jobs.items()
                  if not now or (was == "running" and now not in GOES_ON)]  # fmt: skip
        return found + [f"{one} was {was}, is {now or 'unknown'}" for one, (was, now) in self.nodes.items()
                        if self.settled_s is None and was != now and out(now)]  # fmt: skip


def parse_head(said: Mapping[str, object]) -> Parsed:
    """Seconds until Slurm serves."""
    facts = as_facts(HeadFacts, {"type": "recovery-head", **said}, "recovery")
    if facts.boot.reading.boot == facts.before.boot:
        raise ParseError("recovery: the head's boot has the id of the one before")
    if facts.job not in facts.jobs:
        raise ParseError(f"recovery: nothing is said of job {facts.job}, which ran meanwhile")
    if facts.serves_s is not None and facts.settled_s is not None and facts.settled_s < facts.serves_s:
        raise ParseError("recovery: nodes were as before when Slurm did not serve")
    found = [] if facts.serves_s is None else [Sample(metric="recovery_serves_s", value=facts.serves_s, unit="s")]
    return found, facts


@method("recovery-head", "how soon Slurm serves again after the head's restart, with nodes and jobs as before")
def judge_head(case: Case, criterion: Criterion) -> Sequence[Judgement]:
    """Each head."""
    judged = []
    bound = Bound(metric=criterion.metric or criterion.id, unit="s", maximum=criterion.bound.value,
                  derivation=(criterion.bound.words,), source=criterion.source)  # fmt: skip
    for m in case.serving(criterion):
        name = m.nodes[0]
        facts = facts_for(case, criterion, name, m.id, HeadFacts, bound)
        if isinstance(facts, Judgement):
            judged.append(facts)
            continue
        odd, serves = facts.odd, facts.serves_s
        if serves is None:
            why = f"Slurm never served again while it was watched; the head was ready after {facts.boot.ready_s:.1f} s"
            judged.append(judgement(criterion, name, "fail", "not-working", why, [m.id], bound=bound))
            continue
        kept = f"{number_of(len(facts.jobs), 'job')} and {number_of(len(facts.nodes), 'node')} as before"
        text = f"Slurm serves after {serves:.1f} s" + ("" if odd else f", {kept}")
        late = bound.maximum is not None and serves > bound.maximum
        state = ("fail", "not-equal") if odd else ("fail", "above-maximum") if late else ("pass", "within-bounds")
        why = "; ".join([text, *odd[:MOST_NAMED]])
        judged.append(judgement(criterion, name, state[0], state[1], why, [m.id],  # type: ignore[arg-type]
                                summary=summarize([serves]), text=text, bound=bound))  # fmt: skip
    return judged
