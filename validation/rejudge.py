"""Judging a run from its files alone, by the rules that are copied into it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from validation.consistency import check_documents, read_evidence
from validation.criterion import load_criteria
from validation.fabric import load_fabric
from validation.judge import judge
from validation.load import ConfigError, load_json, read_results
from validation.model import Plan, RunInfo, Topology, VerdictDoc
from validation.parsers.common import place


def judge_files(run_dir: Path) -> VerdictDoc:
    """The verdict on the run in `run_dir`; writes nothing. ConfigError with one line where a document is damaged, or
    contradicts another.
    """
    info = load_json(run_dir / "run.json", RunInfo)
    topology = load_json(run_dir / "topology.json", Topology)
    plan = load_json(run_dir / "plan.json", Plan)
    fabric = load_fabric(str(run_dir / "fabric.yml"))
    criteria = load_criteria(run_dir / "criteria")
    remarks = check_documents(run_dir, info, topology, plan, fabric, criteria)
    results, torn = read_results(run_dir / "results.jsonl", info.run)
    evidence = read_evidence(run_dir, info, plan, results)
    notes = (*remarks, *((torn,) if torn else ()), *evidence.notes)
    try:
        return judge(info, topology, plan, fabric, criteria, results, evidence=replace(evidence, notes=notes))
    except Exception as fault:  # an answer that nobody foresaw is an error of ours, and no verdict
        raise ConfigError(
            f"{run_dir}: cannot be judged: {place(fault)}; this is an error of the toolkit: report it with this run"
        ) from fault
