"""A failed test is repeated, once, where this machine stood still under it (nothing was scheduled for over a second),
and where it starts real programs, as those of the folders in SHARED do: they share the processors with other checks.

Tests wait for real programs with limits of seconds. A host that takes the processors away for longer, as a virtual
machine's may, ends such a wait without a fault of anybody; a failure that is there again counts. The end of the run
lists what was repeated with its first failure, and no more than MOST_REPEATED tests of a run are.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from time import monotonic  # this one: a test may put a clock of its own into the module, and count who looks at it

import pytest
from _pytest.runner import call_and_report

#: A thread that sleeps this long is awake again within milliseconds, a hundredth of a second on a crowded machine.
BEAT_S = 0.1
STILL_S = 1.0
MOST_REPEATED = 3
PROGRAMS = "its programs share this machine with other checks"
#: Folders whose tests start real programs: why what such a one does a second later may be no fault.
SHARED = {
    "integration": "the machines of a lab share this one",
    "functional": PROGRAMS,
    "engine": PROGRAMS,
    "engine_torch": PROGRAMS,
}
#: Test, why it was repeated, how it failed at first.
REPEATED = pytest.StashKey[list[tuple[str, str, str]]]()


class Standstill:
    """A thread that looks how late it is woken, as long as this context is open."""

    def __enter__(self) -> Standstill:
        self.longest_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        before = monotonic()
        while not self._over.wait(BEAT_S):
            now = monotonic()
            self.longest_s = max(self.longest_s, now - before - BEAT_S)
            before = now


class _Sibling:
    """What comes next, for pytest's teardown, has the same module and class: what they share is kept."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item

    def listchain(self) -> Sequence[object]:
        return self._item.listchain()[:-1]


def protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Runs the test and reports it; what a standstill may have spoilt is run once more, and that counts."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    repeated = item.config.stash.setdefault(REPEATED, [])
    reports, why = _attempt(item, nextitem, may_repeat=len(repeated) < MOST_REPEATED)
    if why:
        repeated.append((item.nodeid, why, next(r.longreprtext for r in reports if r.failed)))
        reports, _ = _attempt(item, nextitem, may_repeat=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _attempt(item: pytest.Item, nextitem: pytest.Item | None, may_repeat: bool) -> tuple[list[pytest.TestReport], str]:
    """Its reports, and why it has to be repeated, or ""."""
    if hasattr(item, "_request") and not item._request:
        item._initrequest()  # type: ignore[attr-defined]  # of the second attempt, as pytest's own protocol does it
    with Standstill() as watch:
        reports = [call_and_report(item, "setup", log=False)]
        if reports[0].passed and not item.config.getoption("setuponly"):
            reports.append(call_and_report(item, "call", log=False))
    again = _why(item, watch.longest_s) if may_repeat and reports[-1].failed else ""
    after = _Sibling(item) if again else None if item.session.shouldstop else nextitem
    reports.append(call_and_report(item, "teardown", log=False, nextitem=after))
    if hasattr(item, "_request"):
        item._request = False
        item.funcargs = None  # type: ignore[attr-defined]
    return reports, again


def _why(item: pytest.Item, still_s: float) -> str:
    """Why its failure may be nobody's fault, or ""."""
    if still_s >= STILL_S:
        return f"nothing was scheduled for {still_s:.1f} s"
    return SHARED.get(item.path.parent.name, "")


def summary(reporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What was repeated, and how it failed at first."""
    repeated = config.stash.get(REPEATED, [])
    if repeated:
        reporter.section(f"repeated: {len(repeated)}")
    for name, why, words in repeated:
        reporter.write_line(f"{name}: {why}; its first failure:\n{words}\n")
