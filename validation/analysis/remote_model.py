"""The time of a step through an engine, from the native step, what a step asks for, and what its calls cost both ways.

    remote = native + synchronisations x s + bytes to the device x u + bytes from it x d + max(0, launches x l - idle)

s, u, d, l are what one call, or one byte, costs more through the engine than natively; idle is how long the native step
waits for the device when everything has been launched: so much of the launches' own cost is hidden behind the device's
work. (The same rule with the device's time for idle: "Characterizing Network Requirements for GPU API Remoting",
arXiv 2401.13354, and remoting engines' own accounts.) All times in seconds, of the step in the middle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import linear_regression

WITHIN = 0.15
"""By how much of the measured ratio the predicted one may differ for the model to explain it."""
JUDGED_FROM = 32
"""The least batch of which the ratio is judged: smaller ones are shown by VMware's figures of 2019 to lose more (blog
part 2), and are reported."""
WORTH = 0.005
"""A change that gains less than so much of the ratio is not named."""


@dataclass(frozen=True)
class Calls:
    """Seconds of calls of a step one way: a synchronisation alone, and with one behind them all launches of a step, the
    copy of its bytes to the device, and that from the device.
    """

    synchronisation: float
    launches: float
    to_device: float
    from_device: float


@dataclass(frozen=True)
class Step:
    """What a step asks for, and what it takes natively. waiting: of its seconds, in the synchronisation at its end."""

    batch: int
    native: float
    waiting: float
    launches: float
    bytes_to: float
    bytes_from: float
    synchronisations: float


@dataclass(frozen=True)
class Costs:
    """What each costs more through the engine than natively: a synchronisation, a launch, a byte to and from the
    device. idle: of the device's native time, in which launches cost nothing.
    """

    synchronisation: float
    launch: float
    byte_to: float
    byte_from: float
    idle: float


@dataclass(frozen=True)
class Prediction:
    """A step through the engine: seconds natively, and what the engine adds."""

    batch: int
    native: float
    synchronisations: float
    copies: float
    launches: float
    bytes: float

    @property
    def remote(self) -> float:
        """Seconds of the step through the engine."""
        return self.native + self.synchronisations + self.copies + self.launches

    @property
    def ratio(self) -> float:
        """Remote over native throughput."""
        return self.native / self.remote


@dataclass(frozen=True)
class Gain:
    """A change, and the ratio that the model predicts with it."""

    change: str
    ratio: float


def costs(step: Step, native: Calls, remote: Calls) -> Costs:
    """What each call and byte costs more remotely. ValueError for a step that asks for nothing."""
    if min(step.launches, step.bytes_to, step.bytes_from, step.synchronisations) <= 0:
        raise ValueError("a step launches, copies both ways and waits")

    def more(kind: str) -> float:
        """Without the synchronisation behind it."""
        there = getattr(remote, kind) - remote.synchronisation
        return float(there - (getattr(native, kind) - native.synchronisation))

    return Costs(
        synchronisation=remote.synchronisation - native.synchronisation,
        launch=more("launches") / step.launches,
        byte_to=more("to_device") / step.bytes_to,
        byte_from=more("from_device") / step.bytes_from,
        idle=max(0.0, step.waiting - native.synchronisation),
    )


def predict(step: Step, one: Costs) -> Prediction:
    """The step through the engine. ValueError where the costs leave no time for it, as those of a busy machine may."""
    made = Prediction(
        batch=step.batch,
        native=step.native,
        synchronisations=step.synchronisations * one.synchronisation,
        copies=step.bytes_to * one.byte_to + step.bytes_from * one.byte_from,
        launches=max(0.0, step.launches * one.launch - one.idle),
        bytes=step.bytes_to + step.bytes_from,
    )
    if not made.remote > 0 or not made.native > 0:
        raise ValueError("its calls would cost less than nothing")
    return made


def gains(mine: Prediction, natives: Mapping[int, float], link_bytes_s: float | None = None) -> list[Gain]:
    """What each change would make of the ratio, the best first; those alone that are worth naming.

    natives: batch -> native seconds of a step; with two batches or more a larger one can be told, by the line through
    them. link_bytes_s: payload that the link carries in a second, where it is known: what copies take beyond it is not
    the link's.
    """
    found: list[Gain] = []

    def with_less(change: str, seconds: float) -> None:
        found.append(Gain(change, mine.native / (mine.remote - seconds)))

    if len(natives) > 1:
        slope, start = linear_regression(list(natives), list(natives.values()))
        grown = start + slope * 2 * mine.batch
        # Both of a step's copies grow with its batch here; the loss, which does not, is a few bytes.
        remote = grown + mine.synchronisations + 2 * mine.copies + mine.launches
        if mine.native < grown <= remote:
            found.append(Gain("a batch twice as large", grown / remote))
    with_less("half the latency", max(0.0, mine.synchronisations) / 2)
    copies = max(0.0, mine.copies)
    if link_bytes_s is None:
        with_less("copies twice as fast (a faster link, pinned memory, RDMA)", copies / 2)
    else:
        link = min(copies, mine.bytes / link_bytes_s)
        with_less("a link twice as fast", link / 2)
        with_less("copies as fast as the link (pinned memory, RDMA)", copies - link)
    with_less("launches at half the cost", mine.launches / 2)
    return sorted((gain for gain in found if gain.ratio - mine.ratio >= WORTH), key=lambda gain: -round(gain.ratio, 6))
