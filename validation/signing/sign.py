"""Signing a run: the manifest once, then one statement and signature for each person."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timezone
from pathlib import Path

from validation.base.files import flush_folder, replace
from validation.model import RunInfo, VerdictDoc
from validation.model.load import ConfigError, load_json, read_bytes
from validation.report import pdf_record
from validation.report.formats import FILES
from validation.report.unavailable import Unavailable
from validation.rules.release import release
from validation.run.read import read
from validation.run.rules_hashes import Rules
from validation.signing import MANIFEST, SIGNATURES, is_signed, ssh
from validation.signing.again import Again, judged_again, made_again
from validation.signing.certificate import Certificate, certificate
from validation.signing.last_day import chosen
from validation.signing.manifest import compare, make_manifest, read_manifest
from validation.signing.readme import README, readme_text
from validation.signing.secrets import refuse_secrets
from validation.signing.signatures import certificate_faults
from validation.signing.statement import Statement, file_name, one_line, profile_words, read_statement, utc_text


@dataclass(frozen=True)
class Signed:
    """A signature: the statement, where it and its certificate stand (None where none could be made), and notes on
    what could not be compared.
    """

    statement: Statement
    path: Path
    certificate: Path | None
    notes: tuple[str, ...]


def signature_files(run_dir: Path) -> list[Path]:
    """The signed statements of a run, in order."""
    folder = run_dir / SIGNATURES
    return sorted(path.with_suffix("") for path in folder.glob("*.txt.sig"))


def read_signed(path: Path) -> Statement:
    """The statement in a file of `signatures/`; ConfigError where it is unreadable or its words were changed."""
    try:
        return read_statement(path.read_bytes().decode(), f"{SIGNATURES}/{path.name}")
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"{SIGNATURES}/{path.name}: cannot be read as a statement") from None


def allowed_before(run_dir: Path) -> set[str]:
    """Files that a signer has allowed already, although they look as if they held a secret."""
    return {name for path in signature_files(run_dir) for name in read_signed(path).allowed}


def check_data(run_dir: Path, pdf: bool = False) -> tuple[VerdictDoc, Again]:
    """The verdict, and what follows from the data beside it; ConfigError where verdict or report do not: nobody signs
    that.

    `pdf` says whether the PDF is made again too; who has just written it need not.
    """
    run = read(run_dir)  # read once for both
    verdict, fault = judged_again(run)
    if fault:
        raise ConfigError(f"{run_dir / fault}; run: toolkit validate --rejudge {run_dir}")
    again = made_again(run, pdf)
    if again.faults:
        raise ConfigError(f"{run_dir / again.faults[0]}; run: toolkit report {run_dir}")
    return verdict, again


def prepare(run_dir: Path, rules: Rules) -> None:
    """Put README.txt, and what the PDF was made with, into a run that is not signed yet, so that the manifest covers
    them too.
    """
    info = load_json(run_dir / "run.json", RunInfo)
    verdict = load_json(run_dir / "verdict.json", VerdictDoc)
    replace(run_dir / README, readme_text(info, verdict, rules).encode())
    pdf, record = run_dir / FILES["pdf"], None
    if pdf.is_file():
        record = pdf_record.record_of(read_bytes(pdf))
    if record is not None:
        replace(run_dir / pdf_record.NAME, record.text())
    else:
        (run_dir / pdf_record.NAME).unlink(missing_ok=True)  # of an earlier one


def sign_run(
    run_dir: Path,
    key_file: Path,
    name: str,
    company: str,
    allowed: Iterable[str] = (),
    moment: datetime | None = None,
    until: date | None = None,
) -> Signed:
    """Sign the run in `run_dir` as it stands; the reports must be there already.

    `moment` defaults to now, `until`, the last day of the paper, to a year after the run; who signs later may name an
    earlier one. ConfigError with what to do: an unusable key, files that changed since somebody signed,
    a verdict or report that does not follow from the data, something that looks like a secret.
    """
    key = ssh.read_key(key_file)
    first = not is_signed(run_dir)
    earlier = [read_signed(path) for path in signature_files(run_dir)]
    for path, statement in zip(signature_files(run_dir), earlier, strict=True):
        if key.fingerprint in statement.key:
            raise ConfigError(f"{run_dir}: is signed with this key already ({SIGNATURES}/{path.name})")
    if not first:
        _unchanged(run_dir, earlier)
    verdict, again = check_data(run_dir, pdf=not first)
    info = load_json(run_dir / "run.json", RunInfo)
    now = moment or datetime.now(timezone.utc)
    last = chosen(until, info.day or now.date(), now.astimezone(timezone.utc).date())
    kept = refuse_secrets(run_dir, {*allowed, *(n for s in earlier for n in s.allowed)})
    if first:
        prepare(run_dir, again.rules)
        replace(run_dir / MANIFEST, make_manifest(run_dir).encode())
    statement = Statement(
        run=one_line(info.run),
        site=one_line(info.site),
        fabric=one_line(verdict.fabric),
        sign_off=verdict.sign_off,
        outcome=verdict.outcome,
        profile=profile_words(verdict),
        headline=one_line(verdict.line),
        toolkit=release(),
        name=name,
        company=company,
        time=utc_text(now),
        key=f"{key.fingerprint} ({key.kind})",
        manifest_sha256=hashlib.sha256((run_dir / MANIFEST).read_bytes()).hexdigest(),
        allowed=kept,
        rules=one_line(again.rules.line()),
        last_day=last.isoformat(),
    )
    notes, made = () if first else again.notes, None
    try:
        made = certificate(again.documents, [*earlier, statement])
    except Unavailable as fault:
        notes = (*notes, f"no certificate of this signature: {fault}")
    if made is not None:
        sums = tuple((name, hashlib.sha256(content).hexdigest()) for name, content in (made.pdf, made.record))
        statement = dataclasses.replace(statement, certificate=sums)
    text = statement.text().encode()
    signature = ssh.sign(key, statement.namespace, text)
    path = run_dir / SIGNATURES / file_name(len(earlier) + 1, name)
    _place(path, text, signature, statement, made)
    return Signed(statement, path, run_dir / made.pdf[0] if made else None, notes)


def _unchanged(run_dir: Path, earlier: list[Statement]) -> None:
    difference = compare(run_dir, read_manifest(run_dir))
    manifest = hashlib.sha256((run_dir / MANIFEST).read_bytes()).hexdigest()
    words = difference.words()
    if any(statement.manifest_sha256 != manifest for statement in earlier):
        words.insert(0, f"{MANIFEST}: is not the one that was signed")
    for path, statement in zip(signature_files(run_dir), earlier, strict=True):
        words += certificate_faults(run_dir, statement.certificate)
        done = ssh.check(path.read_bytes(), path.with_name(f"{path.name}.sig"), statement.namespace)
        if not done.good or done.fingerprint not in statement.key.split():
            words.append(f"{SIGNATURES}/{path.name}: its signature is not good: {done.why}")
    if words:
        shown = "".join(f"\n  {line}" for line in words[:20]) + (
            f"\n  and {len(words) - 20} more" if words[20:] else ""
        )
        raise ConfigError(
            f"{run_dir}: was changed since it was signed, so nobody else can sign it:{shown}\n"
            "  what to do: restore the files from the bundle"
        )


def _place(path: Path, text: bytes, signature: bytes, statement: Statement, made: Certificate | None) -> None:
    """All files or none: the signature comes last, and until then the run does not count as signed."""
    sig = path.with_name(f"{path.name}.sig")
    beside = [(path.parents[1] / name, content) for name, content in (made.pdf, made.record)] if made else []
    try:
        path.parent.mkdir(exist_ok=True)
        for file, content in (*beside, (path, text)):
            replace(file, content)
        part = path.with_name(f".{sig.name}.part")
        part.write_bytes(signature)
        done = ssh.check(text, part, statement.namespace)
        if not done.good or done.fingerprint not in statement.key.split():
            part.unlink()
            for file in (path, *(file for file, _ in beside)):
                file.unlink()
            raise ConfigError(f"{path.name}: the signature was not made with the key named: {done.why}")
        part.replace(sig)
        flush_folder(path.parent)
    except OSError as fault:
        with contextlib.suppress(OSError):
            for file in (path, *(file for file, _ in beside)):
                file.unlink(missing_ok=True)
        raise ConfigError(f"{path}: cannot be written: {fault.strerror or fault}; make room") from None
