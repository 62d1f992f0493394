"""What leases say to people: no word of Slurm's own bookkeeping, and a word for what has no end."""

from __future__ import annotations

from subprocess import CompletedProcess

import pytest

from toolkit.lease.display import clock, until
from toolkit.lease.jobs.slurm import said


@pytest.mark.parametrize(
    ("stderr", "words"),
    [
        (
            "gpu1 has no image train:3\nsrun: error: gpu1: task 0: Exited with exit code 125\n",
            "gpu1 has no image train:3",
        ),
        ("srun: error: gpu1: task 0: Exited with exit code 125\n", "exit 125"),
        ("srun: error: gpu[1-2]: tasks 0-1: Exited with exit code 3\nsrun: launch/slurm: _step_signal\n", "exit 125"),
        ("boom\nsrun: error: Terminating StepId=41.0\n", "boom"),
        ("srun: error: gpu1: task 0: Out Of Memory\n", "gpu1: task 0: Out Of Memory"),
        ("srun: error: Unable to create step: x\n", "Unable to create step: x"),
    ],
)
def test_what_srun_counts_is_not_said(stderr: str, words: str) -> None:
    assert said(CompletedProcess(["srun"], 125, "", stderr)) == words


def test_what_has_no_end_has_a_word_in_a_table_and_in_a_sentence() -> None:
    assert (clock(None), until(None)) == ("no limit", "until it is released")
    assert until(0.0) == "until 1970-01-01 " + clock(0.0)[-5:]
