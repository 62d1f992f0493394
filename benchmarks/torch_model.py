"""The time of a step by the engine `torch`, from the native step, what a step asks for, what each costs, and the link.

    busy   = max(native + messages x serve, messages x issue, bytes ahead x link)
    remote = busy + waits x (wait + round trip) + bytes up x (u + link) + bytes down x (d + link)

The server computes while the client issues, and what is sent ahead comes meanwhile, so the longest of these counts;
nothing hides what is waited for. The link's cost of a byte is 0 where its rate has no limit.
"""

from __future__ import annotations

from dataclasses import dataclass

WITHIN = 0.15
"""By how much of the measured step the predicted one may differ for the model to explain it."""


@dataclass(frozen=True)
class Step:
    """What a step asks for, and what it takes natively. bytes_up: all that is sent, but for what is sent ahead."""

    native_s: float
    messages: float
    waits: float
    bytes_up: float
    bytes_down: float
    bytes_ahead: float = 0.0


@dataclass(frozen=True)
class Costs:
    """issue: of a message, on the client; serve: of a message on the server, beyond the operator itself; wait: of an
    answer, without the link; up, down: of a byte, without the link.
    """

    issue_s: float
    serve_s: float
    wait_s: float
    up_s: float
    down_s: float


@dataclass(frozen=True)
class Link:
    """A round trip longer than that of the costs, and 10^9 bit/s (0: no limit)."""

    delay_ms: float
    gbps: float = 0.0

    @property
    def name(self) -> str:
        """As 0.5, or 0.5/1 with a rate: in documents and on the command line."""
        return f"{self.delay_ms:g}" + (f"/{self.gbps:g}" if self.gbps else "")

    @classmethod
    def of(cls, name: str) -> Link:
        """That of a name."""
        delay, _, rate = name.partition("/")
        return cls(float(delay), float(rate or 0))

    @property
    def words(self) -> str:
        """For a table's head."""
        return f"+{self.delay_ms:g} ms" + (f", {self.gbps:g} Gbit/s" if self.gbps else "")


def predicted_s(step: Step, costs: Costs, link: Link) -> float:
    """Seconds of a step by that link."""
    byte_s = 8e-9 / link.gbps if link.gbps else 0.0
    busy = max(step.native_s + step.messages * costs.serve_s, step.messages * costs.issue_s, step.bytes_ahead * byte_s)
    waits = step.waits * (costs.wait_s + link.delay_ms / 1e3)
    return busy + waits + step.bytes_up * (costs.up_s + byte_s) + step.bytes_down * (costs.down_s + byte_s)


def off_by(predicted: float, measured: float) -> float:
    """How far the prediction is off, as a part of what was measured."""
    return predicted / measured - 1
