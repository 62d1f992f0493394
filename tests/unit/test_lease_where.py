"""Where a program of `toolkit run` runs: what an engine without kernels refuses."""

from __future__ import annotations

import pytest

from toolkit.commands import run
from toolkit.lease import LeaseError
from toolkit.lease.engines import NAMES, load


def test_an_engine_without_kernels_starts_no_program_that_was_not_told_so() -> None:
    """It would train on the processor without a word."""
    with pytest.raises(LeaseError, match=r"reference\) runs no kernels, so python could compute nothing.*--no-kernels"):
        run.refuse_without_kernels("reference", ("python", "train.py"), False)
    run.refuse_without_kernels("reference", ("python", "copies.py"), True)
    run.refuse_without_kernels("reference", ("/usr/bin/elastic-ai-copybench", "--json"), False)
    run.refuse_without_kernels("lupine", ("python", "train.py"), False)


def test_every_engine_says_whether_it_runs_kernels() -> None:
    assert {name: load(name).RUNS_KERNELS for name in NAMES} == {"bitfusion": True, "lupine": True, "reference": False}
