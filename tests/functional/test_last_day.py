"""A signed paper has a last day: what sign writes, and what verify makes of it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime, timezone
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.functional.test_signing_certificate import read, says
from tests.support.signing_case import make_key, reported_run
from toolkit.cli import cli
from validation.model.load import ConfigError
from validation.signing import ssh
from validation.signing.last_day import chosen, expired
from validation.signing.sign import sign_run
from validation.signing.statement import read_statement
from validation.signing.verify import verify_run

pytestmark = pytest.mark.computes
MOMENT = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)


def test_a_paper_that_has_expired_is_authentic_and_verify_ends_with_3(tmp_path: Path) -> None:
    run, key = reported_run(tmp_path / "run"), make_key(tmp_path / "key")
    signed = sign_run(run, key, "A. Example", "Integrator", (), MOMENT, date(2026, 11, 22))
    text = signed.path.read_text()
    assert "# valid-until: 2026-11-22\n# ended-by:  a change of firmware, GPU driver or parts" in text
    assert read_statement(text, "x").last_day == "2026-11-22"
    assert signed.certificate is not None
    assert says(read(signed.certificate), "holds until 2026-11-22, while firmware, driver and parts stay")
    done = CliRunner().invoke(cli, ["verify", str(run)])
    assert done.exit_code == 3, done.output
    assert "paper: expired: its last day was 2026-11-22; ended before by a change of firmware" in done.output
    assert done.output.splitlines()[-1].startswith("EXPIRED: authentic, as it was signed; its last day was 2026-11-22")
    said = json.loads(CliRunner().invoke(cli, ["verify", str(run), "--json"]).stdout)
    assert (said["answer"], said["intact"], said["expired"], said["last_day"]) == ("expired", True, True, "2026-11-22")

    signed.path.write_text(text.replace("2026-11-22", "2099-11-22"))
    done = CliRunner().invoke(cli, ["verify", str(run)])
    assert done.exit_code == 1, "a later day was written in"


def test_without_a_day_it_is_a_year_after_the_run() -> None:
    ran = date(2026, 11, 21)
    assert chosen(None, ran, date(2026, 12, 24)) == date(2027, 11, 21)
    assert chosen(date(2027, 1, 1), ran, date(2026, 12, 24)) == date(2027, 1, 1)
    with pytest.raises(ConfigError, match="--until: 2026-12-01 has passed on the day of the signature"):
        chosen(date(2026, 12, 1), ran, date(2026, 12, 24))
    with pytest.raises(ConfigError, match="at most 1096 are allowed"):
        chosen(date(2036, 12, 1), ran, date(2026, 12, 24))
    assert [expired(day, date(2026, 11, 21)) for day in ("2026-11-20", "2026-11-21", "", "x")] == [True] + [False] * 3


@pytest.mark.parametrize("day", ["9999-12-31", "2029-11-24", "20271121", "2027-W46-7"])
def test_a_signed_day_that_sign_takes_from_nobody_is_no_signature(tmp_path: Path, day: str) -> None:
    run, key = reported_run(tmp_path / "run"), make_key(tmp_path / "key")
    signed = sign_run(run, key, "A. Example", "Integrator", (), MOMENT)
    said = read_statement(signed.path.read_text(), "x")
    for file in signed.path.parent.glob("*certificate*"):
        file.unlink()
    text = replace(said, last_day=day, certificate=()).text().encode()
    signed.path.write_bytes(text)
    signed.path.with_name(signed.path.name + ".sig").write_bytes(ssh.sign(ssh.read_key(key), said.namespace, text))
    found = verify_run(run)
    assert found.answer == "not-verified", found
    assert found.signatures[0].state == "bad"
