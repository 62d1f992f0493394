"""The time of a step by the engine `torch`, from the native step, what a step asks for, what each costs, and the link.

    busy   = max(native + messages x serve, messages x issue)
    remote = busy + waits x (wait + round trip) + bytes up x u + bytes down x d

The server computes while the client issues, so the longer of the two counts; nothing hides what is waited for.
"""

from __future__ import annotations

from dataclasses import dataclass

WITHIN = 0.15
"""By how much of the measured step the predicted one may differ for the model to explain it."""


@dataclass(frozen=True)
class Step:
    """What a step asks for, and what it takes natively. bytes_up and bytes_down: of tensors, without the messages."""

    native_s: float
    messages: float
    waits: float
    bytes_up: float
    bytes_down: float


@dataclass(frozen=True)
class Costs:
    """issue: of a message, on the client; serve: of a message on the server, beyond the operator itself; wait: of an
    answer, without the link; up, down: of a byte.
    """

    issue_s: float
    serve_s: float
    wait_s: float
    up_s: float
    down_s: float


def predicted_s(step: Step, costs: Costs, round_trip_s: float) -> float:
    """Seconds of a step by a link whose round trip is so much longer than that of the costs."""
    busy = max(step.native_s + step.messages * costs.serve_s, step.messages * costs.issue_s)
    waits = step.waits * (costs.wait_s + round_trip_s)
    return busy + waits + step.bytes_up * costs.up_s + step.bytes_down * costs.down_s


def off_by(predicted: float, measured: float) -> float:
    """How far the prediction is off, as a part of what was measured."""
    return predicted / measured - 1
