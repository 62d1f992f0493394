"""What a rotation would do, or did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

What = Literal["munge-key", "registry"]
WHATS: tuple[What, ...] = ("munge-key", "registry")
State = Literal["planned", "nothing to do", "done", "gone back", "open"]


@dataclass(frozen=True)
class Done:
    """`changes`: by node; `cannot`: what cannot be had without a pause; `left`: nodes that are not done, and why;
    `lost`: jobs that did not go on; `running`, `waiting`: how many jobs are concerned; `interrupted`: by Ctrl-C,
    after which it went back; `unread`: why nobody knows whether jobs ended meanwhile."""

    what: What
    state: State
    changes: dict[str, list[str]] = field(default_factory=dict)
    cannot: tuple[str, ...] = ()
    left: dict[str, str] = field(default_factory=dict)
    running: int = 0
    waiting: int = 0
    lost: dict[int, str] = field(default_factory=dict)
    seconds: float = 0.0
    paused_s: float = 0.0
    why: str = ""
    interrupted: bool = False
    unread: str = ""

    def document(self) -> dict[str, object]:
        """As --json prints it."""
        return {
            "what": self.what, "state": self.state, "changes": self.changes, "cannot": list(self.cannot),
            "left": self.left, "jobs_running": self.running, "jobs_waiting": self.waiting,
            "jobs_lost": {str(job): state for job, state in self.lost.items()}, "seconds": round(self.seconds, 1),
            "paused_s": round(self.paused_s, 1),
            "why": "; ".join(filter(None, (self.why, self.unread))),
        }  # fmt: skip
