"""More runs to be damaged: a waiver that expired, a last attempt that was lost, a job whose steps wobble.

Each is good in its form; what it shows is that something about it is bad, and that must not be lost.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.support.damage_case import AGREED, agreed_run
from tests.support.raw_case import NOTHING, keep, measured
from tests.support.site import write_results
from validation.model import REPORT, Measurement, Plan, Result, RunInfo
from validation.model.load import load_json, read_results
from validation.run.read import tied

EXPIRED = AGREED.replace("when: 2026-11-20", "when: 2026-11-01").replace("2027-01-01", "2026-11-20")
NO_ANSWER = "no end and no answer from gpu1 within 60 s"


def expired_run(run_dir: Path) -> Path:
    """As `agreed_run`, but its waiver expired on the day before: it is not accepted."""
    agreed_run(run_dir)
    (run_dir / "waivers.yml").write_text(EXPIRED)
    info = load_json(run_dir / "run.json", RunInfo)
    fresh = info.model_copy(update={"documents": tied(run_dir)})
    (run_dir / "run.json").write_text(fresh.model_dump_json(indent=2))
    return run_dir


def lost_run(run_dir: Path) -> Path:
    """As `agreed_run`, but a job was taken again, and its last attempt came to no end: it is not accepted."""
    agreed_run(run_dir)
    info = load_json(run_dir / "run.json", RunInfo)
    plan = load_json(run_dir / "plan.json", Plan)
    lines = read_results(run_dir / "results.jsonl", info.run)[0]
    job = next(r for r in lines if r.measurement == "training-short.1")
    write_results(run_dir, [*lines, lost(run_dir, plan.measurement(job.measurement), job, 2)])
    return run_dir


def lost(run_dir: Path, m: Measurement, like: Result, attempt: int) -> Result:
    """An attempt that came to no end, as it is recorded: with a report that says nothing but what was denied."""
    number = f"{attempt}." if attempt > 1 else ""
    outputs = {"out": "", "err": "", REPORT: NOTHING}
    logs = keep(run_dir, m, {f"{number}{name}": text for name, text in outputs.items()})
    nothing = {"status": "timeout", "error": NO_ANSWER, "samples": (), "facts": {}, "denied": ()}
    provenance = like.provenance.model_copy(update={"raw": logs, "tool": "", "tool_version": "", "command": ()})
    return like.model_copy(update={**nothing, "attempt": attempt, "provenance": provenance})


def wobbly_run(run_dir: Path) -> Path:
    """As `agreed_run`, but the steps of all jobs wobble more than hardware may, and less than a rehearsal's may."""
    agreed_run(run_dir)

    def wobble(m: Measurement, r: Result) -> Result:
        samples = tuple(
            s.model_copy(update={"value": s.value * (1.12 if i % 2 else 0.88)}) for i, s in enumerate(r.samples)
        )
        return r.model_copy(update={"samples": samples})

    remade(run_dir, "training-short", wobble)
    return run_dir


def remade(run_dir: Path, kind: str, change: Callable[[Measurement, Result], Result]) -> None:
    """All results of that kind changed, as if the nodes had measured that."""
    info = load_json(run_dir / "run.json", RunInfo)
    plan = load_json(run_dir / "plan.json", Plan)
    kinds = {m.id: m for m in plan.measurements if m.kind == kind}
    lines = read_results(run_dir / "results.jsonl", info.run)[0]
    for id_ in kinds:
        shutil.rmtree(run_dir / "raw" / id_, ignore_errors=True)
    made = [
        measured(run_dir, kinds[r.measurement], change(kinds[r.measurement], r)) if r.measurement in kinds else r
        for r in lines
    ]
    write_results(run_dir, made)
