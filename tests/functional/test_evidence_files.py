"""The parts and the verdict of a signed run for other tools, held against the publishers' own validators."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from google.protobuf.json_format import ParseDict
from in_toto_attestation.predicates.test_result.v0.test_result_pb2 import TestResult
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1.statement_pb2 import Statement as StatementForm

from tests.support import answers
from tests.support.hardware_case import reading
from tests.support.signing_case import NEEDS_SSH, make_key, reported_run, sign
from toolkit.cli import cli
from toolkit.lab.bmc.constructed import server

pytestmark = [NEEDS_SSH, pytest.mark.computes]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A signed run in which parts were read; not to be changed."""
    base = tmp_path_factory.mktemp("evidence")
    bmcs = {f"gpu{n}": reading(server(n, "16G", f"gpu{n}")) for n in (1, 2)}
    made = reported_run(base / "run", virtual=False, waive=True, names=("gpu1", "gpu2"), bmcs=bmcs,
                        suites=("preflight", "transport"))  # fmt: skip
    sign(made, make_key(base / "key"))
    return made


def evidence(run: Path, out: Path, *more: str) -> Result:
    return CliRunner().invoke(cli, ["handover", "evidence", str(run), "--out", str(out), *more])


def test_both_files_are_what_their_publishers_validators_accept(run: Path, tmp_path: Path) -> None:
    done = evidence(run, tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    bom, statement = map(Path, answers.check(done.stdout, "evidence")["files"])
    strict = JsonStrictValidator(SchemaVersion.V1_6)
    assert strict.validate_str(bom.read_text()) is None
    listed: dict[str, Any] = json.loads(bom.read_text())
    assert strict.validate_str(json.dumps({**listed, "odd": 1})) is not None, "the validator refuses what is wrong"
    report = json.loads((run / "report.json").read_text())
    serials = {p["serial"] for one in report["parts"] for p in one["parts"] if p["serial"]}
    found = {p["value"] for one in listed["components"] for part in one["components"] for p in part["properties"]
             if p["name"] == "elastic-ai:serial"}  # fmt: skip
    assert found == serials
    assert len(serials) > 20

    said = json.loads(statement.read_text())
    form = ParseDict(said, StatementForm())
    Statement.copy_from_pb(form).validate()
    result = ParseDict(said["predicate"], TestResult())
    assert list(result.passed_tests) == [c["id"] for c in report["criteria"] if c["verdict"] == "pass"]
    assert {"pf.stack"} <= {*result.passed_tests, *result.warned_tests, *result.failed_tests}
    manifest = (run / "signatures/01-a-example.txt").read_text()
    assert f"{said['subject'][0]['digest']['sha256']}  MANIFEST.sha256\n" in manifest
    with pytest.raises(ValueError, match="At least one subject"):
        Statement.copy_from_pb(ParseDict({**said, "subject": []}, StatementForm())).validate()

    assert evidence(run, tmp_path / "again").exit_code == 0
    assert all((tmp_path / "again" / path.name).read_bytes() == path.read_bytes() for path in (bom, statement))


def test_a_run_that_is_unsigned_or_changed_gives_none(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "changed")
    (tmp_path / "changed/report.html").write_text("better")
    shutil.copytree(run, tmp_path / "bare")
    shutil.rmtree(tmp_path / "bare/signatures")
    (tmp_path / "bare/MANIFEST.sha256").unlink()
    for name, words in (("changed", "is not as it was signed"), ("bare", "nobody has signed it")):
        done = evidence(tmp_path / name, tmp_path / "out")
        assert (done.exit_code, words in done.output) == (2, True), done.output
    (tmp_path / "file").touch()
    done = evidence(run, tmp_path / "file/out")
    assert (done.exit_code, "cannot be made: Not a directory" in done.output) == (2, True), done.output
    assert not (tmp_path / "out").exists()
