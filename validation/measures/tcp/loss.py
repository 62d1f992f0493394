"""Judging what TCP had to send again between two ports: what a fabric loses shows there before a rate falls.

A congestion control that does not slow down for loss (BBR) reaches the full rate over a link that loses a few percent.
"""

from __future__ import annotations

from validation.analysis.stats import Summary
from validation.judging.case import Case, judgement, unusable
from validation.judging.methods import method
from validation.judging.values import bound_of, subject_of
from validation.model import Judgement, Measurement, Result
from validation.rules.criterion import Criterion
from validation.rules.wire import TCP_HEADERS_BYTES


@method("tcp-loss", "segments that TCP sent again, as a share of those that arrived")
def judge_tcp_loss(case: Case, criterion: Criterion) -> list[Judgement]:
    """One judgement for each ordered pair: segments sent again over segments that arrived, the best of all attempts."""
    bound, judged = bound_of(case, criterion), []
    for measurement in case.serving(criterion):
        about, ids = subject_of(measurement), (measurement.id,)
        gone = unusable(case, criterion, about, ids, bound)
        if gone is not None:
            judged.append(gone)
            continue
        if case.emulated(measurement):
            why = "not judged: an emulated machine's processor drops what its card brings"
            judged.append(judgement(criterion, about, "not-measured", "virtual", why, ids, bound=bound))
            continue
        shares = [share_of(case, measurement, result) for result in case.tries(measurement.id)]
        known = [share for share in shares if share is not None]
        if not known or bound is None or bound.maximum is None:
            why = f"{measurement.id} does not say how many segments were sent again, or at what rate"
            judged.append(judgement(criterion, about, "not-measured", "missing-metric", why, ids, bound=bound))
            continue
        share = min(known)
        summary = Summary(median=share, mad=0.0, low=share, high=share, count=1)
        fine = share <= bound.maximum
        why = f"{share:.2%} of the segments were sent again, at most {bound.maximum:.2%} allowed"
        judged.append(
            judgement(
                criterion,
                about,
                "pass" if fine else "fail",
                "within-bounds" if fine else "above-maximum",
                why,
                ids,
                summary=summary,
                bound=bound,
            )
        )
    return judged


def share_of(case: Case, measurement: Measurement, result: Result) -> float | None:
    """Segments sent again over those that arrived, in the measured time; None where the result does not say.

    A segment carries the MTU less its headers, as iperf3's buffers (128 KiB) fill each of them.
    """
    again = result.values("retransmits")
    rate, seconds = result.plain.get("receiver_mean_gbps"), measurement.params.get("seconds")
    if len(again) != 1 or not isinstance(rate, (int, float)) or not isinstance(seconds, (int, float)) or rate <= 0:
        return None
    segments = rate * 1e9 / 8 * seconds / (case.fabric.mtu - TCP_HEADERS_BYTES)
    return again[0] / segments if segments >= 1 else None
