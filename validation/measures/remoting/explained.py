"""What the model of remoting makes of a training both ways: the predicted ratio beside the measured one, and advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from validation.analysis.remote_model import WITHIN, Calls, Gain, Prediction, Step, costs, gains, predict
from validation.measures.remoting.train import CallCosts, RemoteTrainFacts, TrainRun, Way

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
