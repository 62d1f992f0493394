"""What root's programs on a server say is one line each, bounded, and can always be said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lease_host import FakeHost
from toolkit.lease.server import hooks, journal


def test_what_others_named_is_one_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A line of its own, a byte that is no character, an end of a string: told, and no error of the one who tells."""
    journal.tell("job 5: a\nroot: all is well \x1b[1A \udc80 \0 ünï")
    said = capsys.readouterr().err
    assert said == "job 5: a\\nroot: all is well \\x1b[1A \\udc80 \\x00 ünï\n"


def test_what_users_can_multiply_is_told_within_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    journal.tell_all("GPUs 2", [f"process {number} has /dev/nvidia2 open" for number in range(5000)])
    said = capsys.readouterr().err
    assert said.endswith("; and 4980 more\n")
    journal.tell("x" * 100_000)
    assert len(capsys.readouterr().err) < 5000


@pytest.mark.parametrize(
    "fault", [ValueError("no JSON"), KeyError("nftables"), UnicodeDecodeError("utf-8", b"", 0, 1, "x")]
)
def test_an_answer_that_is_none_drains_nothing_before_a_job_and_is_named_after_it(
    tmp_path: Path, fault: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host = FakeHost(folder=tmp_path)
    monkeypatch.setenv("SLURM_JOB_ID", "5")

    def fails(*_words: object) -> None:
        raise fault

    monkeypatch.setattr(host.slurm, "job", fails)
    monkeypatch.setattr(hooks, "take_back", fails)
    assert hooks.prolog(host) == 0
    assert f"no lease started: {type(fault).__name__}" in capsys.readouterr().err
    assert hooks.epilog(host) == 1
    assert f"not everything of its lease was removed: {type(fault).__name__}" in capsys.readouterr().err
