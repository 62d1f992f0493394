"""A soak whose controller is killed keeps each segment that came to its end, and goes on from there: real files."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.engine_run import ROOT

SECONDS, SEGMENTS, KILLS = 1, 6, 3
BEGIN = f"""
import dataclasses, sys
from pathlib import Path
from toolkit.validate.here import plan_here
from toolkit.validate.measuring import measured
from toolkit.validate.request import Output, ThisMachine
from validation.plan.suites import make_plan
from validation.run.catalogue import load_criteria

asked = ThisMachine(("burn-in",), False, False, None, False, False, Path(sys.argv[1]), Output((), False, False))
whole, options = plan_here(asked), {{"load_s": {SECONDS * SEGMENTS}, "segment_s": {SECONDS}}}
here = whole.topology.here.model_copy(update={{"torch_python": "", "gpu_trouble": "not of this test"}})
topology = whole.topology.model_copy(update={{"here": here}})
plan = make_plan("plan", topology, whole.loaded.fabric, load_criteria(), ("burn-in",), options)
measured(dataclasses.replace(whole, topology=topology, plan=plan, options=options), asked.runs_dir)
"""


def kept(run: Path) -> list[dict[str, Any]]:
    """Results that are whole."""
    path = run / "results.jsonl"
    found = []
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            assert line == path.read_bytes().splitlines()[-1]
    return found


def test_killed_at_random_moments_it_keeps_all_full_segments_and_goes_on(tmp_path: Path) -> None:
    moments = random.Random(46)
    begin = [sys.executable, "-c", BEGIN, str(tmp_path)]
    resume = [sys.executable, "-m", "toolkit", "validate", "--runs-dir", str(tmp_path), "--format", "json", "--resume"]
    before: list[dict[str, Any]] = []
    run: Path | None = None
    for _ in range(KILLS):
        command = begin if run is None else [*resume, str(run)]
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        until, more = time.monotonic() + 120, moments.randint(1, 2)
        while len(_results(tmp_path)) < len(before) + (more if run is None else 1):  # something of it is finished
            assert process.poll() is None, process.stderr.read()  # type: ignore[union-attr]
            assert time.monotonic() < until
            time.sleep(0.02)
        time.sleep(moments.uniform(0, SECONDS))  # in the middle of the next one, or of its writing
        process.send_signal(signal.SIGKILL)
        process.communicate()
        run = next(tmp_path.iterdir()) if run is None else run
        found = kept(run)
        assert found[: len(before)] == before  # nothing that was kept is touched
        assert all(one["status"] == "ok" for one in found)
        before = found
        if len(before) >= SEGMENTS - 2:  # one more may end before the kill
            break
    assert run is not None
    assert 0 < len(before) < SEGMENTS
    judged = _verdict(run)
    assert judged["bi.exact"] == "not-measured"  # what is shorter than ordered passes nothing
    done = subprocess.run([*resume, str(run)], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
                          capture_output=True, text=True, check=False, timeout=300)  # fmt: skip
    whole = kept(run)
    assert whole[: len(before)] == before, done.stderr
    assert sorted(one["measurement"].split(".")[0] for one in whole) == [
        f"burn-in-{n:03}" for n in range(1, SEGMENTS + 1)
    ]
    assert _verdict(run)["bi.exact"] == "pass", done.stderr
    assert sum(one["facts"]["took_s"] for one in whole) >= SECONDS * SEGMENTS


def _results(runs: Path) -> list[dict[str, Any]]:
    return [one for run in runs.iterdir() for one in kept(run)]


def _verdict(run: Path) -> dict[str, str]:
    from toolkit.acceptance import judge_run

    return {one.id: one.verdict for one in judge_run(run).criteria}
