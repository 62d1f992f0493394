"""Judging a run from its files alone, by the rules that are copied into it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from validation.consistency import check_documents, read_evidence
from validation.judge import judge
from validation.load import ConfigError
from validation.model import VerdictDoc
from validation.parsers.common import place
from validation.runfiles import RunFiles


def judge_files(run: Path | RunFiles) -> VerdictDoc:
    """The verdict on a run by its directory; writes nothing. ConfigError with one line where a document is damaged, or
    contradicts another.
    """
    run = RunFiles.of(run)
    remarks = check_documents(run)
    waivers, profile = run.waivers(run.criteria), run.profile(run.criteria)
    evidence = read_evidence(run)
    notes = (*remarks, *((run.torn,) if run.torn else ()), *evidence.notes)
    try:
        found = replace(evidence, notes=notes)
        return judge(
            run.info, run.topology, run.plan, run.fabric, run.criteria, run.results, waivers, profile, found,
            run.accepted,
        )  # fmt: skip
    except Exception as fault:  # an answer that nobody foresaw is an error of ours, and no verdict
        raise ConfigError(
            f"{run.folder}: cannot be judged: {place(fault)}; this is an error of the toolkit: report it with this run"
        ) from fault
