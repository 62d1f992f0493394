"""Judging a training on several GPUs: over more and more servers, and in layouts beside the native one.

That as many GPUs compute the same wherever they are is judged on any device; rates of emulated GPUs, and of virtual
machines, are shown and judged on nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from validation.analysis.denial import explains, loss_of
from validation.analysis.scaling import Efficiency, efficiency
from validation.analysis.stats import Summary
from validation.base.counting import number_of
from validation.judging.attempts import too_noisy
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.judging.values import STEPS, against, bound_of, impossible, most_of
from validation.measures.remoting.train_judge import unjudged
from validation.measures.remoting.worlds_facts import WorldsFacts
from validation.measures.remoting.worlds_parse import metric_of
from validation.model import Judgement, Measurement, Subject
from validation.rules.criterion import Criterion


def _rates(case: Case, job: Measurement, name: str) -> list[float] | str:
    """Of every step that counts, of all attempts, or why there are none to be used."""
    tries = case.tries(job.id)
    found = [s.value for r in tries for s in r.samples if s.metric == metric_of(name) and s.unit == STEPS]
    turns, steps = int(str(job.params.get("turns", 0))), int(str(job.params.get("steps", 0)))
    if not found or len(found) != len(tries) * turns * (steps - 1):
        return f"{job.id}: {name}: not all of {number_of(turns, 'turn')} with {number_of(steps, 'step')} are there"
    return impossible(found, STEPS, "", most_of(case, None, found, STEPS)) or found


def _facts(case: Case, job: Measurement) -> list[WorldsFacts] | str:
    tries = case.tries(job.id)
    facts = [known for result in tries if (known := result.facts_of(WorldsFacts)) is not None]
    if not facts or len(facts) != len(tries) or len({known.names() for known in facts}) != 1:
        return f"{job.id} has a result, but not of these trainings"
    return facts


def _over(case: Case, job: Measurement, name: str, base: str, times: int) -> tuple[Efficiency, int] | str:
    """Rate of a job over `times` that of another, and of how many samples."""
    both = [_rates(case, job, which) for which in (name, base)]
    rates = [each for each in both if not isinstance(each, str)]
    if len(rates) < 2:
        return next(each for each in both if isinstance(each, str))
    return efficiency(rates[0], rates[1], times), min(map(len, rates))


def _summary(found: Efficiency, count: int) -> Summary:
    return Summary(median=found.value, mad=0.0, low=found.low, high=found.high, count=count)


def _different(facts: Sequence[WorldsFacts]) -> str:
    """The jobs that computed something else than others on as many GPUs, "" where there are none."""
    wrong = [words for known in facts for words in known.differing()]
    return f"{len(wrong)} trainings computed something else: {'; '.join(wrong[:4])}" if wrong else ""


@method("remote-scale", "a training on more and more GPUs from one client over one GPU, in turns", counts="jobs")
def judge_remote_scale(case: Case, criterion: Criterion) -> list[Judgement]:
    """Rate over more and more GPUs, over as many times that of one: reported. The same GPUs compute the same in each
    turn: that is judged."""
    judged: list[Judgement] = []
    for job in case.serving(criterion):
        subject = Subject.node(job.nodes[0])
        gone = unusable(case, criterion, subject, (job.id,), None)
        if gone is not None:
            judged.append(gone)
            continue
        facts = _facts(case, job)
        if isinstance(facts, str):
            judged.append(judgement(criterion, subject, "not-measured", "missing-metric", facts, [job.id]))
            continue
        if wrong := _different(facts):
            judged.append(judgement(criterion, subject, "fail", "not-equal", wrong, [job.id]))
            continue
        emulated = "GPUs are emulated: " if any(known.emulated for known in facts) else ""
        base, *more = facts[0].names()
        for name in more:
            gpus = facts[0].of(name)[0].gpus
            about = Subject.node(job.nodes[0], f"{number_of(gpus, 'GPU')}, {name.replace('-', ' ')}")
            over = _over(case, job, name, base, gpus)
            if isinstance(over, str):
                judged.append(judgement(criterion, about, "not-measured", "missing-metric", over, [job.id]))
                continue
            found, count = over
            text = f"{found.rate:.4g} / ({gpus} x {found.single:.4g} images/s) = {found.value:.3f}"
            summary, why = _summary(found, count), f"reported: {emulated}{text}"
            judged.append(
                judgement(criterion, about, "not-applicable", "reported", why, [job.id], summary=summary, text=text)
            )
    return judged


@method(
    "remote-layouts",
    "a training on GPUs near and far through the engine over natively, in turns",
    figures=True,
    counts="jobs",
)
def judge_remote_layouts(case: Case, criterion: Criterion) -> list[Judgement]:
    """Each layout over the native one, against the fabric's bound."""
    return [judged for job in case.serving(criterion) for judged in _layouts(case, criterion, job)]


def _layouts(case: Case, criterion: Criterion, job: Measurement) -> list[Judgement]:
    evidence, bound = [job.id], bound_of(case, criterion)
    subject = Subject.node(job.nodes[0])
    gone = unusable(case, criterion, subject, evidence, bound)
    if gone is not None:
        return [gone]
    facts = _facts(case, job)
    if isinstance(facts, str):
        return [judgement(criterion, subject, "not-measured", "missing-metric", facts, evidence)]
    if wrong := _different(facts):
        return [judgement(criterion, subject, "fail", "not-equal", wrong, evidence, bound=bound)]
    names = sorted(facts[0].names(), key=lambda name: ("N" not in name, "R" in name, "L" not in name))
    native, *others = names
    loss, judged = loss_of(case.tries(job.id)), []
    for name in others:
        about = Subject.node(job.nodes[0], name)
        over = _over(case, job, name, native, 1)
        if isinstance(over, str):
            judged.append(judgement(criterion, about, "not-measured", "missing-metric", over, evidence))
            continue
        found, count = over
        text = f"{name} {found.rate:.4g} / {native} {found.single:.4g} images/s = {found.value:.3f}"
        summary = _summary(found, count)
        shown = unjudged(case, criterion, any(k.emulated for k in facts), about, summary, text, evidence)
        if shown is not None:
            judged.append(shown)
        elif bound is None:
            why = f"no bound is known for {case.fabric.name}; {text}"
            judged.append(
                judgement(criterion, about, "not-measured", "no-bound", why, evidence, summary=summary, text=text)
            )
        else:
            made = against(criterion, about, evidence, summary, bound)
            made = made.model_copy(update={"text": text, "reason": f"{made.reason}; {text}"})
            judged.append(too_noisy(made, loss) if explains(loss, made) else made)
    if not job.params.get("other"):
        why = f"{job.nodes[0]} is the only GPU server: nothing is remote"
        judged.append(
            judgement(criterion, Subject.node(job.nodes[0], "R"), "not-measured", "missing-metric", why, evidence)
        )
    elif facts[0].worlds[0].gpus == 1:
        why = "a server has one GPU: no training is half here and half there"
        judged.append(
            judgement(criterion, Subject.node(job.nodes[0], "LR"), "not-applicable", "not-applicable", why, evidence)
        )
    return judged
