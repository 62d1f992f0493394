"""How much a measurement was denied of its processors, and what that explains. All constants are ours.

Being denied makes a measurement slower and never faster. So it may explain a failure, and never a pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from validation.model import Denied, Judgement, Result

HOST = "host"
"""`where` of the machine that carries a lab's nodes."""

DISTURBED = 0.05
"""Share of its time below which what a machine was denied explains nothing."""

MOST = 0.60
"""Share of the time above which more denial explains no more: nothing excuses a link that carries a tenth."""

LOSS_POWER = 2
"""A stream that gets (1 - share) of the time carries (1 - share) ^ 2 or more: it waits, and then it has to grow again.
On two cores under 40 % stress a clean link of 1 Gbit/s lost less than that of its rate, whatever it was denied."""


CAUGHT_UP = 1.10
"""What a lab's link may carry above its rate in most of a stream's intervals, after a stall: its bucket holds 25 ms of
tokens, an interval lasts 250 ms."""


@dataclass(frozen=True)
class Loss:
    """What was denied to a measurement: the largest share of the time (0 to 1) of any of its machines, and in words."""

    share: float = 0.0
    words: str = ""

    @property
    def disturbs(self) -> bool:
        """True where it is enough to explain something."""
        return self.share >= DISTURBED


_NOTHING = Loss()


def loss_of(results: Iterable[Result]) -> Loss:
    """The worst of what the machines of some results were denied. What is not known counts as nothing: it explains
    nothing either."""
    losses = [_loss(denied, result.denied) for result in results for denied in result.denied]
    return max(losses, key=lambda loss: loss.share) if losses else _NOTHING


def _loss(denied: Denied, beside: Iterable[Denied]) -> Loss:
    lab = any(d.where == HOST for d in beside)
    who = "this machine" if denied.where == HOST else denied.where
    waited, others = denied.pressure, denied.others
    if denied.where == HOST:
        waited = None  # somebody always waits on a busy host; whether the measurement did, its nodes say
    if lab and waited is not None:
        others = None  # on the nodes of one host the other end of a measurement is another's program, too
    parts = (  # the share, whether others used what was waited for, so that it must not count twice, and words
        (denied.steal, False, f"{who} lost {{:.0%}} of its time to other guests"),
        (denied.throttled, False, f"{who} was held back by its quota of processor time for {{:.0%}} of the time"),
        (waited, False, f"{who} waited for a processor for {{:.0%}} of the time"),
        (others, True, f"other programs on {who} used {{:.0%}} of its processors"),
    )
    left, worst, words = 1.0, 0.0, ""
    for share, overlaps, said in parts:
        if share is None:
            continue
        if overlaps:
            left = min(left, 1 - share)
        else:
            left *= 1 - share
        if share > worst:
            worst, words = share, said.format(share).replace("%", " %")
    held = denied.throttled
    if held is not None and DISTURBED <= held < worst:
        # Who has used up its quota waits for a processor, too; the quota is what can be changed.
        words += f", and {who} was held back by its quota of processor time for {held:.0%}".replace("%", " %")
    return Loss(1 - left, words)


def last_results(results: Iterable[Result]) -> dict[str, Result]:
    """The result that stands for each measurement: its last one, for a run measures again what failed or could not
    decide, and appends. A repeat that came to no end on a machine that was busy takes nothing from what was measured.
    """
    found: dict[str, Result] = {}
    for result in results:
        measured = result.measurement in found and found[result.measurement].status == "ok"
        if result.status == "ok" or not (measured and loss_of([result]).disturbs):
            found[result.measurement] = result
    return found


def explains(loss: Loss, judgement: Judgement) -> bool:
    """True where a judgement that is no pass may come from the loss alone.

    A round trip, or the spread of a job's steps, grows without limit when its ends have to wait. What a link carries is
    bounded: a loss beyond that of LOSS_POWER is the link's own.
    """
    if not loss.disturbs or judgement.verdict == "pass":
        return False
    bound = judgement.bound
    if judgement.verdict == "fail" and bound is not None and bound.floor is not None and judgement.value is not None:
        return judgement.value >= bound.floor * (1 - min(loss.share, MOST)) ** LOSS_POWER
    if judgement.reason_code == "above-ceiling" and bound is not None and bound.ceiling and judgement.value is not None:
        return judgement.value <= bound.ceiling * CAUGHT_UP
    return judgement.reason_code in ("above-maximum", "too-noisy")
