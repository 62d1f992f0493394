"""What `toolkit deploy` prints while it runs: stages, roles, nodes and the time left."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
import yaml

from tests.support.deploy_events import ROOT, STAGES, begun, event
from toolkit.deploy.progress import LONG, StageLines
from toolkit.deploy.rescued import rescued_tasks
from toolkit.deploy.site_state import Estimate, LastRun, Step
from toolkit.deploy.watch import DeployWatch, Failure


def test_the_time_left_is_the_last_runs_corrected_by_this_runs_pace() -> None:
    last = LastRun(total_s=100, steps=tuple(Step(name=n, began_s=s) for n, s in (("a", 0), ("b", 20), ("a", 60))))
    assert Estimate(None).left_s(3) is None
    estimate = Estimate(last)
    assert estimate.left_s(0) == pytest.approx(100)
    estimate.begin("a", 0)
    estimate.begin("new", 5)
    assert estimate.left_s(10) == pytest.approx(90)
    estimate.begin("b", 10)  # twice as fast as then: 80 s of then are left, which is 40
    assert estimate.left_s(15) == pytest.approx(35)
    estimate.begin("a", 30)  # the second step of this name, at 60 of then
    assert estimate.left_s(30) == pytest.approx(20)
    assert estimate.left_s(99) is None, "nobody knows what is left of a task that takes longer than ever"


def test_lines_tell_stage_role_nodes_and_time_left_once_for_each_role() -> None:
    out, now = io.StringIO(), [0.0]
    estimate = Estimate(LastRun(total_s=90, steps=(Step(name="base|base|Install", began_s=0),)))
    watch = DeployWatch(STAGES)
    lines = StageLines(out, watch, estimate, lambda: now[0])
    for step in (
        event("playbook_on_start"),
        event("playbook_on_play_start", name="Base system"),
        event("playbook_on_task_start", role="base", task="Install"),
        event("runner_on_start", "gpu1"),
        event("runner_on_start", "gpu2"),
        event("runner_on_ok", "gpu1", res={"changed": False}),
        event("playbook_on_task_start", role="base", task="Configure"),
        event("runner_on_start", "gpu1"),
        event("runner_on_failed", "gpu1", role="base", task="Configure", res={"msg": "no"}),
    ):
        watch.take(step)
        lines.event()
    assert out.getvalue().splitlines() == [
        "[1/2] base: base on gpu1, gpu2   0s elapsed, about 1m30s left",
        "gpu1 failed at base: Configure; the reason is at the end, and in the log",
    ]


def test_a_failure_that_a_rescue_takes_up_is_said_by_the_rescue_alone() -> None:
    out = io.StringIO()
    watch = DeployWatch(STAGES, rescued_tasks(ROOT / "roles"))
    lines = StageLines(out, watch, Estimate(None), lambda: 0.0)
    for role, task in (
        ("preflight", "Gather facts"),
        ("repos", "Update apt's lists"),
        ("repos", "Fail with the reason from the package manager"),
    ):
        watch.take(event("playbook_on_task_start", role=role, task=task))
        watch.take(event("runner_on_start", "gpu1"))
        watch.take(event("runner_on_failed", "gpu1", role=role, task=task, res={"msg": f"gpu1: {task}"}))
        lines.event()
    (line,) = [line for line in out.getvalue().splitlines() if line.startswith("gpu1 ")]
    assert line.startswith("gpu1 failed at repos: Fail with the reason")
    assert watch.nodes["gpu1"].failure == Failure(
        "repos: Fail with the reason from the package manager", "Fail with the reason from the package manager"
    ), "without the node's name before it"


def test_a_slow_beginning_makes_no_hour_of_the_rest() -> None:
    estimate = Estimate(LastRun(total_s=386, steps=(Step(name="a", began_s=0), Step(name="b", began_s=5))))
    estimate.begin("a", 0)
    estimate.begin("b", 19)
    assert estimate.left_s(19) == pytest.approx(381)


def test_of_a_first_run_no_time_is_told_that_nobody_knows() -> None:
    out = io.StringIO()
    lines = StageLines(out, begun("gpu1"), Estimate(None), lambda: 65.0)
    lines.event()
    lines.pulse(0)
    assert out.getvalue() == "[1/2] base: base on gpu1   0s elapsed\n"
    assert "left" not in out.getvalue()


def test_roles_that_follow_fast_are_told_every_15_seconds_and_a_long_task_as_often() -> None:
    out, now = io.StringIO(), [0.0]
    watch = begun("head")
    lines = StageLines(out, watch, Estimate(None), lambda: now[0])
    for number in range(20):  # twenty roles of three seconds
        watch.take(event("playbook_on_task_start", role=f"role{number}", task="Install"))
        watch.take(event("runner_on_start", "head"))
        lines.event()
        for _ in range(10):
            now[0] += 0.3
            lines.pulse()
    assert len(out.getvalue().splitlines()) == 4
    watch.take(event("playbook_on_task_start", role="horovod", task="Build the wheel in a container"))
    watch.take(event("runner_on_start", "head"))
    lines.event()
    began, before = now[0], len(out.getvalue().splitlines())
    for _ in range(300):
        now[0] += 0.3
        lines.pulse()
    first, *told = out.getvalue().splitlines()[before:]
    assert first.startswith("[1/2] base: horovod on head   ")
    assert told, began
    pattern = r"\[1/2\] base: building the training image: compiling Horovod, (1m)?\d\ds, on head   [\dm]+s elapsed"
    assert all(re.fullmatch(pattern, line) for line in told), told
    assert 4 <= len(told) <= 6, "one line every 15 seconds"


def test_tasks_that_have_words_of_their_own_are_tasks_of_their_roles() -> None:
    for role, task in LONG:
        names = [
            entry.get("name")
            for path in (ROOT / "roles" / role / "tasks").glob("*.yml")
            for entry in _tasks(yaml.safe_load(path.read_text()))
        ]
        assert task in names, (role, task)


def _tasks(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for entry in entries or []:
        found.append(entry)
        for key in ("block", "rescue", "always"):
            found += _tasks(entry.get(key, []))
    return found


def test_output_that_nobody_reads_any_more_stops_nothing() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    lines = StageLines(Gone(), DeployWatch(STAGES), Estimate(None))
    lines.said("first")
    lines.said("second")
