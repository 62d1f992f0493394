"""Judging a run from its files alone, by the rules that are copied into it."""

from __future__ import annotations

from pathlib import Path

from validation.criterion import load_criteria
from validation.fabric import load_fabric
from validation.judge import judge
from validation.load import load_json, read_results
from validation.model import Plan, RunInfo, Topology, VerdictDoc


def judge_files(run_dir: Path) -> VerdictDoc:
    """The verdict on the run in `run_dir`; writes nothing. ConfigError with one line where a document is damaged."""
    info = load_json(run_dir / "run.json", RunInfo)
    results, _ = read_results(run_dir / "results.jsonl", info.run)
    return judge(
        info,
        load_json(run_dir / "topology.json", Topology),
        load_json(run_dir / "plan.json", Plan),
        load_fabric(str(run_dir / "fabric.yml")),
        load_criteria(run_dir / "criteria"),
        results,
    )
