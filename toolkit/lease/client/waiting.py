"""A lease that waits for its turn: what its client asks of Slurm and how often, and what the user hears."""

from __future__ import annotations

from collections.abc import Callable

from toolkit.lease import Exit, LeaseError
from toolkit.lease.client.endings import Over, ended_of, over
from toolkit.lease.jobs.slurm import Turn
from toolkit.lease.jobs.slurm_text import JobState, SlurmJob
from toolkit.lease.machine.host import Host

#: How often a client asks while its turn may be the next, so much less often for each that is before it, and at least;
#: how often for its place then. In a long queue one and a half times a minute (benchmarks/waiting.py).
POLL_FIRST_S, POLL_LAST_S, POLL_FAR_S = 0.25, 2.0, 40.0
TURN_S = 10.0
#: So long after it came each client asks often: Slurm starts who has room, however many wait for other GPUs, in its
#: next rounds (bf_interval, role slurm: 5 s).
ROOM_S = 15.0
#: How long a controller that does not answer is waited for; jobs in the queue keep their places meanwhile.
AWAY_S = 300.0
#: How long the parts of one lease may start apart; servers keep those that run for twice as long and more.
PART_S = 25.0
#: Reasons of a job that waits for an administrator (Slurm, squeue: job reason codes), the second after a start that
#: failed on its server; and of one that a failed start has put back into the queue, to be tried again in two minutes.
HELD = ("JobHeldAdmin", "launch failed requeued held")
LATER = "BeginTime"


class StartedInPart(Exception):
    """Some parts of a lease run and others do not: two leases may each have what the other waits for."""


class HeldBack(LeaseError):
    """Slurm keeps a lease from starting: after a start that its server or a restart of the controller spoilt, or by an
    administrator's word."""

    def __init__(self, lease: int, why: str, cure: str = "ask an administrator") -> None:
        """To be tried again."""
        super().__init__(f"lease {lease}: {why}; {cure}", Exit.RETRY)
        self.why = why


def _refuse_held(host: Host, lease: int, reason: str) -> None:
    """HeldBack where the reason of a pending lease says that waiting does not help."""
    if reason == HELD[0]:
        raise HeldBack(lease, f"Slurm holds it back ({reason})")
    if reason not in (*HELD, LATER):
        return
    jobs = host.slurm.job_parts(lease)
    if reason == LATER and not any(job.restarts for job in jobs):
        return  # somebody wants it to begin later
    user = f"user {jobs[0].user} (uid {jobs[0].uid})" if jobs else "its user"
    cure = f"is {user} known there (getent passwd)? slurmd's log on the server says more to an administrator"
    raise HeldBack(lease, f"its server could not start it, and Slurm has put it back into the queue ({reason})", cure)


class _Waiting:
    """What the user was told of the wait, and how often Slurm is asked: less often far back in a queue that stands."""

    def __init__(self, host: Host, lease: int, text: str, say: Callable[[str], None]) -> None:
        self.host, self.lease, self.text, self.say = host, lease, text, say
        self.began = self.answered = host.clock.monotonic()
        self.looked: float | None = None
        self.turn, self.told, self.pause = Turn(None), "", POLL_FIRST_S
        self.turn_in_s = float("inf")

    def queued(self) -> bool:
        """Whether it has a place behind others still: the queue tells that, the place and the reason at once."""
        if self.before == 1:
            return False
        self._look()
        if self.turn.place is None:
            return False
        _refuse_held(self.host, self.lease, self.turn.reason)
        self.answered = self.host.clock.monotonic()
        self._tell(self.turn.reason)
        return True

    def tell(self, reason: str) -> None:
        """The place in the queue, whenever something of it has changed."""
        now = self.host.clock.monotonic()
        if now - self.began <= 1:
            return
        if self.looked is None or now - self.looked >= TURN_S:
            self._look()
        self._tell(reason)

    def _look(self) -> None:
        """Its place, and how soon its turn comes if the queue goes on moving as it did since the last look."""
        now, before, looked = self.host.clock.monotonic(), self.before, self.looked
        self.looked, self.turn = now, self.host.slurm.turn(self.lease)
        gone = before - self.before
        self.turn_in_s = self.before * (now - looked) / gone if looked is not None and gone > 0 else float("inf")

    def _tell(self, reason: str) -> None:
        words = f"lease {self.lease}: waits for {self.text}"
        words += f", place {self.turn.place} in the queue" if self.turn.place else ""
        words += f" ({reason})" if reason not in ("", "None") else ""
        words += f", expected {self.turn.start}" if self.turn.start else ""
        if words != self.told and (self.turn.place or not self.told):
            self.say(words)
            self.told = words

    def unanswered(self, fault: LeaseError) -> None:
        """A controller that starts again keeps the place in the queue, so the client waits for it too, for AWAY_S."""
        now = self.host.clock.monotonic()
        if fault.code != Exit.RETRY or now - self.answered > AWAY_S:
            raise fault
        words = f"lease {self.lease}: {fault}; it keeps its place"
        if words != self.told:
            self.say(words)
            self.told = words

    @property
    def before(self) -> int:
        """Its place, 1 where its turn may be the next."""
        return self.turn.place or 1

    def rest(self, starting: bool) -> None:
        """Until the next question."""
        if self.before > 1 and not starting and self.host.clock.monotonic() - self.began > ROOM_S:
            self.pause = max(min(POLL_LAST_S * self.before, self.turn_in_s / 2, POLL_FAR_S), POLL_LAST_S)
        self.host.clock.sleep(self.pause)
        self.pause = min(self.pause * 1.5, POLL_LAST_S)


def wait(host: Host, lease: int, text: str, say: Callable[[str], None], parts: int = 1) -> list[SlurmJob]:
    """Wait until all jobs of a lease run, and say what it waits for whenever that changes."""
    waiting, first = _Waiting(host, lease, text, say), 0.0
    while True:
        running: list[JobState] = []
        try:
            if parts == 1 and waiting.queued():
                waiting.rest(False)
                continue
            states = host.slurm.states(lease)
            if not states:
                raise Over(lease, "Slurm has no record of it any more")
            for reason in dict.fromkeys(job.reason for job in states if job.state == "PENDING"):
                _refuse_held(host, lease, reason)
            running = [job for job in states if job.state == "RUNNING"]
            if any(job.ended for job in states) or len(running) == len(states) == parts:
                jobs = host.slurm.job_parts(lease)
                ended = ended_of(jobs)
                if ended is not None:
                    raise over(lease, ended)
                if len([job for job in jobs if job.state == "RUNNING"]) == len(jobs) == parts:
                    return jobs
            waiting.answered = host.clock.monotonic()
            if any(job.state == "PENDING" for job in states):
                waiting.tell(next(job.reason for job in states if job.state == "PENDING"))
        except (Over, HeldBack):
            raise
        except LeaseError as fault:
            waiting.unanswered(fault)
        first = first or (host.clock.monotonic() if running else 0.0)
        if running and host.clock.monotonic() - first > PART_S:
            raise StartedInPart
        waiting.rest(bool(running))
