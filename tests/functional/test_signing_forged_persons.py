"""Statements and signatures that are well made, and say what is not so: times, persons, outcome, rules."""
# ruff: noqa: F401, F811 - fixtures of forged_case

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.support.forged_case import made, quick_pdf, run
from tests.support.forging import signed_anew
from tests.support.signing_case import NEEDS_SSH, allow, make_key, sign
from validation.signing import ssh
from validation.signing.signatures import Span
from validation.signing.statement import read_statement
from validation.signing.verify import verify

pytestmark = [NEEDS_SSH, pytest.mark.computes]


@pytest.mark.parametrize(
    ("time", "words"),
    [
        ("2024-05-01T12:00:00Z", "signed at 2024-05-01T12:00:00Z, before the run ended at "),
        ("2026-11-21T10:15:01Z", "before the run ended at "),
        ("2199-01-01T00:00:00Z", "in the future by the clock here"),
    ],
)
@pytest.mark.parametrize("listed", [False, True])
def test_a_signature_is_made_after_the_run_and_before_now(
    run: Path, made: tuple[Path, Path, Path], time: str, words: str, listed: bool
) -> None:
    signed_anew(run, made[1], time=time)
    found = verify(run, made[2] if listed else None)
    assert found.answer == "not-verified"
    assert words in found.signatures[0].why


def test_an_expired_key_is_not_saved_by_an_early_date(run: Path, made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    """Its statement says a time at which the key held, and that was before the run."""
    expired = allow(tmp_path / "expired", made[1], options='valid-before="20250101"')
    for time in ("2024-05-01T12:00:00Z", "2026-11-21T12:00:00Z"):
        signed_anew(run, made[1], time=time)
        assert verify(run, expired).answer == "not-verified", time


def test_a_key_that_ran_out_since_is_said(run: Path, made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    since = allow(tmp_path / "since", made[1], options='valid-before="20261122"')
    found = verify(run, since)
    assert found.answer == "verified"
    assert "it is not valid today" in found.signatures[0].why


def test_a_run_that_ended_in_the_future_is_told(run: Path, made: tuple[Path, Path, Path]) -> None:
    ran = Span(datetime(2026, 1, 1, tzinfo=timezone.utc), datetime(2026, 1, 2, tzinfo=timezone.utc))
    assert list(ran.faults(datetime(2026, 1, 3, tzinfo=timezone.utc))) == []
    (words,) = ran.faults(datetime(2026, 1, 1, 12, tzinfo=timezone.utc))
    assert "in the future" in words
    (words,) = Span(ran.ended, ran.began).faults(datetime(2026, 1, 3, tzinfo=timezone.utc))
    assert "before the run began" in words


@pytest.mark.parametrize("principal", ["a@example.com", "A@Example.com"])
def test_one_person_with_two_keys_is_one_signer(
    run: Path, made: tuple[Path, Path, Path], tmp_path: Path, principal: str
) -> None:
    other = make_key(tmp_path / "other")
    sign(run, other, "B. Example")
    allowed = allow(allow(tmp_path / "both", made[1]), other, principal)
    found = verify(run, allowed)
    assert [s.state for s in found.signatures] == ["trusted", "bad"]
    assert "of the same person as signatures/01-a-example.txt: one signer, not two" in found.signatures[1].why
    assert verify(run, allow(allow(tmp_path / "two", made[1]), other, "b@example.com")).answer == "verified"


def test_one_key_under_two_names_is_one_signer(run: Path, made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    (path,) = (run / "signatures").glob("01-*.txt")
    said = read_statement(path.read_text(), path.name)
    other = replace(said, name="B. Other", company="Bank")
    second = path.with_name("02-b-other.txt")
    second.write_text(other.text())
    key = ssh.read_key(made[1])
    second.with_name(f"{second.name}.sig").write_bytes(ssh.sign(key, other.namespace, other.text().encode()))
    both = allow(allow(tmp_path / "names", made[1]), made[1], "b@example.com")
    for allowed in (None, made[2], both):
        found = verify(run, allowed)
        assert found.answer == "not-intact", "the certificate is that of the other name, too"
        assert "made with the same key as signatures/01-a-example.txt: one signer, not two" in found.signatures[1].why


def test_what_a_statement_says_of_the_outcome_and_the_rules_is_the_runs(
    run: Path, made: tuple[Path, Path, Path]
) -> None:
    for change in ({"outcome": "failed"}, {"rules": f"those of toolkit 0.1.0 (sha256 {'0' * 64})"}):
        copy = Path(shutil.copytree(run, run.with_name("copy")))
        signed_anew(copy, made[1], **change)
        assert verify(copy, made[2]).answer != "verified", change
        shutil.rmtree(copy)
