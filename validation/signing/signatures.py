"""The signatures of a run: each statement, whose it is, what it speaks of, and when it was made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Literal

from validation.base.counting import number_of
from validation.model.load import ConfigError, read_bytes
from validation.model.times import CLOCK_S, moment
from validation.run.read import Run
from validation.signing import MANIFEST, SIGNATURES, ssh
from validation.signing.last_day import MOST_DAYS, too_late
from validation.signing.manifest import file_sha256
from validation.signing.statement import Statement, certificate_names, file_name, read_statement

SignatureState = Literal["trusted", "intact", "bad"]


@dataclass(frozen=True)
class SignatureCheck:
    """A signature. `trusted`: good, and the allowed signers vouch for its key; `intact`: good, nobody was asked whose
    key it is; `bad`: anything else, `why` says what.
    """

    file: str
    state: SignatureState
    why: str
    name: str | None = None
    company: str | None = None
    time: str | None = None
    fingerprint: str | None = None
    principal: str | None = None
    sign_off: str | None = None
    toolkit: str | None = None
    rules: str | None = None
    allowed: tuple[str, ...] = ()
    certificate: str | None = None
    last_day: str | None = None


MAX_BYTES = 1 << 20
"""The most that a statement or a signature may have: ours have some hundreds. Project default."""
MOST = 64
"""How many signatures of a run are looked at, each of which takes ssh-keygen a moment. Project default."""
_SHOWN, _NUMBER = 8, 12
AHEAD = timedelta(minutes=10)
"""By how much the clock of a signer, or of who measured, may be ahead of that of who verifies. Project default."""


@dataclass(frozen=True)
class Span:
    """When a run began and when its last measurement ended; None where its documents do not tell."""

    began: datetime | None
    ended: datetime | None

    def faults(self, now: datetime) -> Iterable[str]:
        """Where these times cannot be."""
        if self.began and self.ended and self.ended < self.began - timedelta(seconds=CLOCK_S):
            yield f"results.jsonl: the last measurement ended at {_said(self.ended)}, before the run began"
        latest = max(filter(None, (self.began, self.ended)), default=None)
        if latest is not None and latest > now + AHEAD:
            yield f"the run says that it ended at {_said(latest)}, which is in the future by the clock here"


def span(run: Run) -> Span:
    """Of a run by its documents."""
    ended = [when for r in run.results if (when := moment(r.provenance.ended)) is not None]
    began = moment(run.info.created)
    return Span(began, max(filter(None, (began, *ended)), default=None))


def _said(when: datetime) -> str:
    return when.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _times(said: Statement, ran: Span, now: datetime) -> Iterable[str]:
    """Where the time of a statement cannot be that of a signature of this run."""
    signed = moment(said.time)
    if signed is None:
        yield f"its time is none: {said.time}"
        return
    if ran.ended is not None and signed < ran.ended - timedelta(seconds=CLOCK_S):
        yield f"it says that it was signed at {said.time}, before the run ended at {_said(ran.ended)}"
    if signed > now + AHEAD:
        yield f"it says that it was signed at {said.time}, which is in the future by the clock here"
    if ran.began is not None and too_late(said.last_day, ran.began.date()):
        yield f"its last day, {said.last_day}, is more than {MOST_DAYS} days after the run, which nobody can sign"


def _persons(checks: list[SignatureCheck]) -> list[SignatureCheck]:
    """The signatures, of each key and each person the first alone counted: one person is one signer."""
    keys: dict[str, str] = {}
    persons: dict[str, str] = {}
    out = []
    for check in checks:
        again = []
        if check.fingerprint is not None:
            first = keys.setdefault(check.fingerprint, check.file)
            again += [f"made with the same key as {first}: one signer, not two"] if first != check.file else []
        if check.principal is not None:
            first = persons.setdefault(check.principal.casefold(), check.file)
            again += [f"of the same person as {first}: one signer, not two"] if first != check.file else []
        if again:
            why = "; ".join([*([check.why] if check.state == "bad" else []), again[0]])
            check = replace(check, state="bad", why=why)
        out.append(check)
    return out


def check_signatures(
    run_dir: Path, is_: Mapping[str, str | None], allowed_signers: Path | None, ran: Span, now: datetime
) -> tuple[list[SignatureCheck], list[str]]:
    """(each signature, what else is wrong in their folder). `is_`: what the run says of itself, by the words that a
    statement has for it; None for what it does not say.
    """
    folder = run_dir / SIGNATURES
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []
    names = [name for name in names if not name.startswith(".")]
    statements = [n for n in names if n.endswith(".txt") and f"{n}.sig" in names]
    certified = [file.rpartition("/")[2] for name in statements[:MOST] for file in certificate_names(name)]
    paired = {*statements, *(f"{n}.sig" for n in statements), *certified}
    faults = [f"{SIGNATURES}/{name}: is no pair of statement and signature" for name in names if name not in paired]
    numbers = [name.partition("-")[0][:_NUMBER] for name in statements]
    if numbers != [f"{n:02d}" for n in range(1, len(numbers) + 1)]:
        shown = ", ".join(numbers[:_SHOWN]) + (f" and {len(numbers) - _SHOWN} more" if numbers[_SHOWN:] else "")
        faults.append(f"{SIGNATURES}/: numbers are {shown}: a signature was taken away or added")
    if len(statements) > MOST:
        faults.append(
            f"{SIGNATURES}/: {number_of(len(statements), 'signature')}; the first {MOST} were looked at, no "
            "run has more"
        )
        statements = statements[:MOST]
    checks = []
    for name in statements:
        check, said = _signature(run_dir, name, is_, allowed_signers, ran, now)
        checks.append(check)
        sums = said.certificate if said is not None else ()
        faults += certificate_faults(run_dir, sums)
        unsaid = [file for file in certificate_names(name) if file not in dict(sums)]
        faults += [f"{file}: its statement names no certificate" for file in unsaid if file.rpartition("/")[2] in names]
    return _persons(checks), faults


def certificate_faults(run_dir: Path, sums: Iterable[tuple[str, str]]) -> list[str]:
    """Where the files of a certificate, (name, SHA-256), are not those that were signed."""
    found = []
    for name, sha256 in sums:
        path = run_dir / name
        if not path.exists() and not path.is_symlink():
            found.append(f"{name}: missing, though its statement names it")
        elif path.is_symlink() or not path.is_file():
            found.append(f"{name}: is not an ordinary file")
        elif file_sha256(path) != sha256:
            found.append(f"{name}: changed since it was signed")
    return found


def _signature(
    run_dir: Path, name: str, is_: Mapping[str, str | None], allowed_signers: Path | None, ran: Span, now: datetime
) -> tuple[SignatureCheck, Statement | None]:
    """What is found of a signature, and its statement where that can be read."""
    file = f"{SIGNATURES}/{name}"
    path = run_dir / SIGNATURES / name
    signature = path.with_name(f"{name}.sig")
    if any(p.is_symlink() or not p.is_file() for p in (path, signature)):
        return SignatureCheck(file, "bad", "is not an ordinary file"), None
    try:
        content, whole = read_bytes(path, MAX_BYTES), ssh.whole(read_bytes(signature, MAX_BYTES))
        statement = read_statement(content.decode(), file)
    except (ConfigError, UnicodeDecodeError):
        return SignatureCheck(file, "bad", "is not a statement of this toolkit, or its text was changed"), None
    if allowed_signers is None:
        checked = ssh.check(content, signature, statement.namespace)
    else:
        checked = ssh.check_signer(content, signature, statement.namespace, allowed_signers, statement.compact_time)
    bare = [] if whole else [f"{signature.name} is not as ssh-keygen writes it: something was cut or added"]
    wrong = [
        *([] if checked.good else [checked.why]),
        *bare,
        *_contradictions(run_dir, name, statement, checked, is_),
        *_times(statement, ran, now),
    ]
    state: SignatureState = "bad" if wrong else "intact" if allowed_signers is None else "trusted"
    check = SignatureCheck(
        file=file,
        state=state,
        why="; ".join(wrong) or checked.why,
        name=statement.name,
        company=statement.company,
        time=statement.time,
        fingerprint=checked.fingerprint,
        principal=checked.principal,
        sign_off=statement.sign_off,
        toolkit=statement.toolkit,
        rules=statement.rules or None,
        allowed=statement.allowed,
        certificate=statement.certificate[0][0] if statement.certificate else None,
        last_day=statement.last_day or None,
    )
    return check, statement


def _contradictions(
    run_dir: Path, name: str, said: Statement, checked: ssh.Checked, is_: Mapping[str, str | None]
) -> Iterable[str]:
    """Where a statement speaks of something else than this run."""
    try:
        same = file_sha256(run_dir / MANIFEST) == said.manifest_sha256
    except ConfigError:
        same = False
    if not same:
        yield f"it signs another {MANIFEST}"
    if checked.fingerprint is not None and said.key != f"{checked.fingerprint} ({checked.kind})":
        yield f"its statement names another key ({said.key})"
    number = name.partition("-")[0]
    if not number.isdecimal() or name != file_name(int(number), said.name):
        yield f"its file is not named as one of {said.name} is"
    if said.certificate and tuple(file for file, _ in said.certificate) != certificate_names(name):
        yield "its statement names the certificate of another signature"
    for what, value in is_.items():
        stated = getattr(said, what.replace("-", "_"))
        if value is not None and stated != value:
            yield f"its statement says {what} {stated}, the run says {value}"
