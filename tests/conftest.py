"""What every test of the project is run under, and the list of the slowest with what each of them alone proves.

- Control-C and a lost terminal are what a terminal sends, even where the suite was started with them ignored, as
  `nohup ... &` does: the commands that tests start would inherit that.
- With ELASTIC_AI_COMPLETE=1 (bin/test sets it, after it has installed every tool) a skipped test is a failed one, but
  for what depends on the machine itself: reasons that begin with "this machine" or "needs root".
- Property tests try the same examples in every run; with `--rest` they try new ones, which may find what nobody knew.
- A failed test is repeated once where this machine stood still, or it starts programs (tests/support/standstill.py).
- Tests marked `rest` run with `--rest` only; docs/testing.md lists them with the reason, and bin/test prints that.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import hypothesis
import pytest

from tests.support import standstill

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # this process still takes no notice of it
    signal.signal(signal.SIGHUP, lambda number, frame: None)

COMPLETE = bool(os.environ.get("ELASTIC_AI_COMPLETE"))
SLOWEST = 20
OF_THE_MACHINE = ("this machine", "needs root")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rest", action="store_true", help="run the tests marked `rest` too (docs/testing.md)")


def pytest_configure(config: pytest.Config) -> None:
    hypothesis.settings.register_profile("same examples", derandomize=True, deadline=None)
    if not config.getoption("--rest"):
        hypothesis.settings.load_profile("same examples")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--rest") or any("::" in word for word in config.args):  # named by hand: it is wanted
        return
    left = [item for item in items if item.get_closest_marker("rest")]
    items[:] = [item for item in items if item not in left]
    config.hook.pytest_deselected(items=left)


def proves(item: pytest.Item) -> str:
    """First line of the test's docstring, else its name, which is a sentence too."""
    text = (getattr(getattr(item, "obj", None), "__doc__", None) or "").strip()
    name = item.name.removeprefix("test_").partition("[")[0].replace("_", " ")
    return str(text.splitlines()[0]) if text else name


def not_run(reason: str) -> bool:
    """Whether a skip for this reason means that bin/test did not do what it says."""
    return COMPLETE and not reason.startswith(OF_THE_MACHINE)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    standstill.protocol(item, nextitem)
    return True


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report: pytest.TestReport = outcome.get_result()  # type: ignore[attr-defined]
    report.user_properties.append(("proves", proves(item)))
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
        if not_run(reason):
            report.outcome = "failed"
            report.longrepr = f"skipped, and bin/test must run it: {reason}"


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    standstill.summary(terminalreporter, config)
    took: dict[str, list[float]] = {}
    words: dict[str, str] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                times = took.setdefault(report.nodeid, [0.0, 0.0])
                times[report.when != "setup"] += report.duration
                words[report.nodeid] = str(dict(report.user_properties).get("proves", ""))
    slowest = sorted(took, key=lambda name: -sum(took[name]))[:SLOWEST]
    if not COMPLETE:
        return
    terminalreporter.section(f"the slowest {len(slowest)}, and what each alone proves")
    for name in slowest:
        before, itself = took[name]
        first = f", and {before:.1f} s for what it shares with others" if before > 1 else ""
        terminalreporter.write_line(f"{itself:6.1f} s  {name}{first}\n          {words[name]}")


@pytest.fixture(scope="module")
def site_runs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Run directories by their names in tests.support.report_fixture.RUNS."""
    from tests.support.report_fixture import MadeRuns

    return MadeRuns(tmp_path_factory.mktemp("runs"))
