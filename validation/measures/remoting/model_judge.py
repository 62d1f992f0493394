"""What the model of remoting says of a measured training both ways: the predicted ratio beside the measured one.

Reported: a model that does not hold is no fault of the pool. It says that something takes time which is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from validation.analysis.remote_model import WITHIN, Calls, Gain, Prediction, Step, costs, gains, predict
from validation.analysis.stats import Summary
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.kinds.record import names
from validation.measures.remoting.train_facts import CallCosts, RemoteTrainFacts, TrainRun, Way
from validation.measures.remoting.train_judge import subject_of
from validation.model import Judgement, Measurement
from validation.rules.criterion import Criterion

KINDS = ("synchronisation", "launches", "to_device", "from_device")


@dataclass(frozen=True)
class Explained:
    """Of one batch size. measured: the ratio of the steps in the middle, as the model's; gains: what would help."""

    prediction: Prediction
    measured: float
    gains: tuple[Gain, ...]

    @property
    def difference(self) -> float:
        """Predicted over measured, less one."""
        return self.prediction.ratio / self.measured - 1

    @property
    def holds(self) -> bool:
        """Whether the model explains the ratio."""
        return abs(self.difference) <= WITHIN


def middle_s(facts: RemoteTrainFacts, way: Way, batch: int) -> float:
    """Seconds of the step in the middle of all turns."""
    return batch / median(facts.rates(way, batch))


def calls_of(runs: Sequence[TrainRun]) -> Calls | None:
    """In the middle of the turns; None where one has no costs."""
    told: list[CallCosts] = [run.costs for run in runs if run.costs is not None]
    if len(told) != len(runs):
        return None
    return Calls(*(median(getattr(one, f"{kind}_us") for one in told) / 1e6 for kind in KINDS))


def explained(facts: RemoteTrainFacts, link_bytes_s: float | None = None) -> dict[int, Explained | str]:
    """Batch -> what the model says of it, or why it says nothing."""
    natives = {batch: middle_s(facts, "native", batch) for batch in facts.batches()}
    found: dict[int, Explained | str] = {}
    for batch, native in natives.items():
        here, there = calls_of(facts.of("native", batch)), calls_of(facts.of("remote", batch))
        first, waits = facts.of("native", batch)[0], [run.wait_us for run in facts.of("native", batch)]
        if here is None or there is None or None in waits:
            found[batch] = "what its calls cost was not measured: elastic-ai-train of an older release"
            continue
        step = Step(
            batch=batch,
            native=native,
            waiting=median(wait for wait in waits if wait is not None) / 1e6,
            launches=first.launches / facts.steps,
            bytes_to=first.bytes_to_devices / facts.steps,
            bytes_from=first.bytes_from_devices / facts.steps,
            synchronisations=first.synchronisations / facts.steps,
        )
        try:
            prediction = predict(step, costs(step, here, there))
        except ValueError as fault:
            found[batch] = f"the costs of its calls make no step: {fault}"
            continue
        measured = native / middle_s(facts, "remote", batch)
        found[batch] = Explained(prediction, measured, tuple(gains(prediction, natives, link_bytes_s)))
    return found


def advice(one: Explained) -> str:
    """What would help most, in one sentence by the model's own terms."""
    now = f"{one.prediction.ratio:.3f}"
    if not one.gains:
        return f"nothing that the model knows would raise the predicted {now} noticeably"
    best, *others = one.gains
    also = "".join(f", {gain.change} {gain.ratio:.3f}" for gain in others)
    return f"{best.change} would help most: {best.ratio:.3f} for the predicted {now}{also}"


def _of_batch(criterion: Criterion, job: Measurement, facts: RemoteTrainFacts, batch: int) -> Judgement:
    about = subject_of(job, f"batch {batch}")
    found = explained(facts).get(batch, "no such batch was trained")
    if isinstance(found, str):
        return judgement(criterion, about, "not-measured", "missing-metric", f"{job.id}: {found}", [job.id])
    text = f"predicted {found.prediction.ratio:.3f}, measured {found.measured:.3f} ({found.difference:+.1%})"
    holds = "" if found.holds else f"; beyond {WITHIN:.0%}: something takes time that is not counted"
    emulated = "GPUs are emulated: " if facts.emulated else ""
    why = f"reported: {emulated}{text}{holds}; {advice(found)}"
    quotient = 1 + found.difference
    summary = Summary(median=quotient, mad=0.0, low=quotient, high=quotient, count=len(facts.rates("remote", batch)))
    return judgement(criterion, about, "not-applicable", "reported", why, [job.id], summary=summary, text=text)


@method("remote-model", "the ratio predicted from counts and costs of calls over the measured one", counts="batches")
def judge_remote_model(case: Case, criterion: Criterion) -> list[Judgement]:
    """For each batch size of the last attempt: the ratio that the model predicts over the measured one."""
    judged: list[Judgement] = []
    for job in case.serving(criterion):
        subject = subject_of(job)
        gone = unusable(case, criterion, subject, (job.id,), None)
        facts = case.tries(job.id)[-1].facts_of(RemoteTrainFacts) if gone is None else None
        if gone is not None:
            judged.append(gone)
        elif facts is None:
            why = f"{job.id} has a result, but no training in it"
            judged.append(judgement(criterion, subject, "not-measured", "missing-metric", why, [job.id]))
        else:
            judged += [_of_batch(criterion, job, facts, int(batch)) for batch in names(job, "batches")]
    return judged
