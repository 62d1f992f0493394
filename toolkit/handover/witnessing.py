"""A person is led through one witnessed test, and what happens meanwhile is written down."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Protocol

from toolkit.handover.witness_state import BEAT_S, STEPS, Kept, Record, State, still_away
from validation.base.counting import number_of
from validation.measures.witness.witnessed import Line, Watched, found_of, seconds, state_at
from validation.model import Measurement
from validation.probes import ProbeDoc
from validation.rules.release import release

READY_S = 30.0
POLL_S = 0.2
STEADY_S = 3.0
"""So long all must be as before, that a link which flaps is not taken for back."""
SKIP = "skip"
TOOL = "toolkit handover witness"


class BrokenOff(Exception):
    """The witness went away; the list goes on with this step the next time."""


class Sensing(Protocol):
    """What watches; see toolkit/handover/senses.py."""

    def ready(self) -> bool:
        """Whether everything has answered once."""


Watching = Callable[[Callable[[Line], None]], AbstractContextManager[Sensing]]
"""Told whom to tell, it watches while it is entered."""


@dataclass(frozen=True)
class Talk:
    """How the person is spoken to. `ask` returns the line, and raises EOFError where nobody answers any more."""

    say: Callable[[str], None]
    ask: Callable[[str], str]


@dataclass
class Leading:
    """One test, led. It can be broken off at each step, and goes on there."""

    m: Measurement
    number: int
    count: int
    kept: Kept
    talk: Talk
    watching: Watching
    lines: list[Line] = field(default_factory=list)

    def lead(self) -> ProbeDoc:
        """From the step at which it is to its document; BrokenOff."""
        state = self._state()
        if state.step > 1:
            self.talk.say(f"going on with step {state.step} of {STEPS} of this test")
        record = self.kept.record(self.test)
        try:
            self.lines = record.read()[0]
            with _Beating(record), self.watching(lambda line: self._told(record, line)) as senses:
                self._get_ready(senses)
                try:
                    skipped = self._steps()
                except EOFError:
                    raise BrokenOff from None
        finally:
            record.close()
        if skipped:
            return self.document("", f"skipped by {self.kept.state.witness}: {skipped}")
        return self.document(self._written(self.kept.record(self.test)), None)

    @property
    def test(self) -> str:
        """Its id."""
        return str(self.m.params["test"])

    def broken_off(self) -> ProbeDoc:
        """What is known of it now."""
        step = self._state().step
        return self.document("", f"broken off at step {step} of {STEPS}, {_STEP_WORDS[step - 1]}")

    def _state(self) -> State:
        state = self.kept.state
        if state.test != self.test:
            state = state.model_copy(update={"test": self.test, "step": 1, "times": {}})
            self.kept.begin(self.test)
            self.kept.write(state)
        return state

    def _told(self, record: Record, line: Line) -> None:
        known = any(one.key == line.key for one in self.lines)
        self.lines.append(line)
        record.put(line.model_dump(mode="json"))
        if known:
            self.talk.say(f"  seen: {line}")

    def _get_ready(self, senses: Sensing) -> None:
        until = time.monotonic() + READY_S
        while not senses.ready() and time.monotonic() < until:
            time.sleep(POLL_S)

    def _passed(self, step: int, **times: float) -> None:
        """That step is done."""
        state = self.kept.state
        self.kept.write(state.model_copy(update={"step": step + 1, "times": {**state.times, **times}}))

    def _steps(self) -> str:
        """All that are left; why the witness left the test out, "" where not."""
        params, state = self.m.params, self.kept.state
        self.talk.say(f"Test {self.number} of {self.count}: {params['title']}")
        if state.step <= 1:
            asked = time.time()
            said = self.talk.ask(f"Now: {params['do']}. Press Enter when it is done (or write skip): ")
            if said.strip().lower() == SKIP:
                return self.talk.ask("Why is it left out? ").strip() or "no reason given"
            self._passed(1, off_asked=asked, off_done=time.time())
        if self.kept.state.step <= 2:
            self._until(self._seen, "off_done", "seen_within_s", "waiting until it is seen")
            self._passed(2)
        if self.kept.state.step <= 3:
            asked = time.time()
            self.talk.ask(f"Now: {params['undo']}. Press Enter when it is done: ")
            self._passed(3, back_asked=asked, back_done=time.time())
        if self.kept.state.step <= 4:
            self._until(self._back, "back_done", "back_within_s", "waiting until all is as before")
            self._passed(4, ended=time.time())
        remark = self.talk.ask("A remark for the report, or Enter: ").strip()
        self._remark = " ".join(remark.split())[:400]
        return ""

    _remark = ""

    def _until(self, there: Callable[[], bool], since: str, within: str, words: str) -> None:
        limit = self.kept.state.times[since] + seconds(self.m.params, within)
        if not there():
            self.talk.say(f"  {words}, {seconds(self.m.params, within):g} s at most")
        while not there() and time.time() < limit:
            time.sleep(POLL_S)

    def _before(self) -> dict[tuple[str, str, str], Line]:
        return state_at(self.lines, self.kept.state.times["off_asked"])

    def _seen(self) -> bool:
        before, node = self._before(), str(self.m.params["node"])
        senses = self.m.params["seen_by"]
        assert isinstance(senses, tuple)
        asked = self.kept.state.times["off_asked"]
        return any(
            line.at > asked and line.sense in senses and node in ("", line.node)
            and line.key in before and line.value != before[line.key].value
            for line in tuple(self.lines)
        )  # fmt: skip

    def _back(self) -> bool:
        lines = tuple(self.lines)
        quiet = time.time() - max((line.at for line in lines), default=0.0) >= STEADY_S
        return quiet and not still_away(lines, self._before())

    def _written(self, record: Record) -> str:
        lines, spans = record.read()
        record.close()
        said = {
            "test": self.test,
            "node": self.m.params["node"],
            "witness": self.kept.state.witness,
            "remark": self._remark,
            "times": self.kept.state.times,
            "watched": spans,
            "count": len(lines),
            "lines": [line.model_dump(mode="json") for line in lines],
        }
        return json.dumps(said)

    def document(self, stdout: str, error: str | None) -> ProbeDoc:
        """The document of a probe; its times are those of the test."""
        now = datetime.now(timezone.utc)
        began = self.kept.state.times.get("off_asked", now.timestamp())
        return {
            "kind": "witness",
            "tool": TOOL,
            "tool_version": release(),
            "command": TOOL.split(),
            "returncode": 0,
            "stdout": stdout,
            "stderr": "",
            "facts": {},
            "started": datetime.fromtimestamp(began, timezone.utc).isoformat(timespec="milliseconds"),
            "ended": now.isoformat(timespec="milliseconds"),
            "duration_s": round(max(0.0, now.timestamp() - began), 3),
            "error": error,
        }


_STEP_WORDS = (
    "before anything was taken away",
    "while it was waited for to be seen",
    "before it was put back",
    "while it was waited for to come back",
    "before the remark",
)


class _Beating:
    """Writes down every few seconds that somebody watches."""

    def __init__(self, record: Record) -> None:
        self._record, self._over = record, threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> None:
        self._record.put({"begins": round(time.time(), 3)})
        self._thread.start()

    def __exit__(self, *fault: object) -> None:
        self._over.set()
        self._thread.join()
        self._record.put({"beat": round(time.time(), 3)})

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            self._record.put({"beat": round(time.time(), 3)})


def told(stdout: str, params: Mapping[str, object]) -> list[str]:
    """What came of a test, for the person who stands at the rack."""
    said = Watched.model_validate_json(stdout)
    facts = found_of(said, params)  # type: ignore[arg-type]
    seen = "nothing there could see it" if facts.blind else "NOT seen"
    seen = seen if facts.seen_s is None else f"seen after {facts.seen_s:g} s ({facts.seen_first})"
    back = f"NOT as before: {', '.join(facts.open)}" if facts.back_s is None else f"back after {facts.back_s:g} s"
    lost = f"LOST beyond the test: {', '.join(facts.lost)}" if facts.lost else "nothing lost beyond the test"
    return [f"  {seen}", f"  {lost}; {number_of(facts.stayed, 'node or link', 'nodes and links')} stayed", f"  {back}"]
