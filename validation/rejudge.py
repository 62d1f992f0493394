"""Judging a run from its files alone, by the rules that are copied into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from validation.consistency import check_documents, read_evidence
from validation.criterion import Criterion, load_criteria
from validation.fabric import load_fabric
from validation.judge import judge
from validation.load import ConfigError, load_json, read_results
from validation.model import Plan, RunInfo, Topology, VerdictDoc
from validation.parsers.common import place
from validation.profile import Profile, load_profile
from validation.suites import SUITES
from validation.waiver import Waiver, load_waivers

PROFILE, WAIVERS = "profile.yml", "waivers.yml"
"""What of a run's rules not every run has: the acceptance profile that was agreed on, and what was waived."""


def run_profile(run_dir: Path, info: RunInfo, criteria: Sequence[Criterion]) -> Profile | None:
    """The acceptance profile in a run, None where there is none; ConfigError where it is not the one of run.json."""
    path = run_dir / PROFILE
    if not path.exists():
        if info.profile is None:
            return None
        raise ConfigError(
            f"{path}: is missing, although run.json names profile {info.profile!r}; restore it from a copy of the run"
        )
    profile = load_profile(str(path), criteria, SUITES)
    if profile.name != info.profile:
        raise ConfigError(
            f"{path}: name: is {profile.name!r}, but run.json says {info.profile!r}; restore it from a copy of the run"
        )
    return profile


def run_waivers(run_dir: Path, criteria: Sequence[Criterion]) -> tuple[Waiver, ...]:
    """The waivers in a run; none where it has no waivers.yml."""
    path = run_dir / WAIVERS
    return load_waivers(path, [c.id for c in criteria]) if path.exists() else ()


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
    waivers, profile = run_waivers(run_dir, criteria), run_profile(run_dir, info, criteria)
    results, torn = read_results(run_dir / "results.jsonl", info.run)
    evidence = read_evidence(run_dir, info, plan, results)
    notes = (*remarks, *((torn,) if torn else ()), *evidence.notes)
    try:
        found = replace(evidence, notes=notes)
        return judge(info, topology, plan, fabric, criteria, results, waivers, profile, found)
    except Exception as fault:  # an answer that nobody foresaw is an error of ours, and no verdict
        raise ConfigError(
            f"{run_dir}: cannot be judged: {place(fault)}; this is an error of the toolkit: report it with this run"
        ) from fault
