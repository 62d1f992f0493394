"""Judging a run from its files alone, by the rules that are copied into it."""

from __future__ import annotations

from pathlib import Path

from validation.kinds.parsing import place
from validation.model import VerdictDoc
from validation.model.load import ConfigError
from validation.run.read import Run, read
from validation.verdict.judge import judge


def judge_files(run: Path | Run, again: bool = False) -> VerdictDoc:
    """The verdict on a run by its directory; writes nothing there. ConfigError with one line where a document is
    damaged, or contradicts another.

    `again`: raw logs that this user's toolkit has read on this machine, and that did not change since, are not read
    once more (docs/explanation/evidence.md). Whoever signs or verifies reads all.
    """
    run = read(run)
    data = run.data(again)
    try:
        return judge(data)
    except Exception as fault:  # an answer that nobody foresaw is an error of ours, and no verdict
        raise ConfigError(
            f"{run.folder}: cannot be judged: {place(fault)}; this is an error of the toolkit: report it with this run"
        ) from fault
