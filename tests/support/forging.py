"""Runs that a signer with a listed key changed before signing: every hash is mended, and the statement is made anew."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.signing_case import sign
from validation.model import RunInfo
from validation.report.formats import write_formats
from validation.run.read import tied
from validation.run.rejudge import judge_files
from validation.signing import MANIFEST, ssh
from validation.signing.manifest import make_manifest
from validation.signing.statement import Statement, profile_words, read_statement


def rehashed(run: Path, **changes: Any) -> None:
    """run.json with the hashes of the documents as they are now, and with `changes`."""
    info = json.loads((run / "run.json").read_text())
    fresh = RunInfo.model_validate({**info, "documents": tied(run), **changes})
    (run / "run.json").write_text("".join(fresh.written()))


def judged_anew(run: Path, formats: tuple[str, ...] = ("html", "pdf", "json", "junit", "prom")) -> None:
    """Verdict and report as the toolkit makes them of the changed files."""
    (run / "verdict.json").write_text("".join(judge_files(run).written()))
    write_formats(run, formats)


def forged(run: Path, key: Path) -> Statement:
    """The run as its files are now, judged, reported and signed by the toolkit's own commands."""
    shutil.rmtree(run / "signatures", ignore_errors=True)
    (run / MANIFEST).unlink(missing_ok=True)
    rehashed(run)
    judged_anew(run)
    return sign(run, key).statement


def signed_anew(run: Path, key: Path, **changes: Any) -> Statement:
    """Manifest and statement of the files as they are now, signed by plain ssh-keygen; no other signature stays, and no
    certificate.
    """
    from validation.model import VerdictDoc
    from validation.model.load import load_json

    (path,) = (run / "signatures").glob("01-*.txt")
    said = read_statement(path.read_text(), path.name)
    (run / MANIFEST).write_text(make_manifest(run))
    verdict = load_json(run / "verdict.json", VerdictDoc)
    said = replace(
        said,
        manifest_sha256=hashlib.sha256((run / MANIFEST).read_bytes()).hexdigest(),
        sign_off=verdict.sign_off,
        outcome=verdict.outcome,
        headline=verdict.line,
        profile=profile_words(verdict),
        certificate=(),
    )
    found = ssh.read_key(key)
    said = replace(said, **{"key": f"{found.fingerprint} ({found.kind})", **changes})
    shutil.rmtree(run / "signatures")
    path.parent.mkdir()
    path.write_text(said.text())
    path.with_name(f"{path.name}.sig").write_bytes(ssh.sign(found, said.namespace, said.text().encode()))
    return said
