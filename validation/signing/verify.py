"""Checking a run directory: every file, the verdict, the reports, and each signature."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from validation.load import ConfigError, load_json
from validation.model import RunInfo, SignOff, VerdictDoc
from validation.release import release
from validation.runfiles import RunFiles
from validation.signing import MANIFEST, SIGNATURES, ssh
from validation.signing.again import judged_again, made_again
from validation.signing.bundle import Damaged, extract_bundle
from validation.signing.manifest import Difference, compare, file_sha256, read_manifest
from validation.signing.readme import README, readme_text
from validation.signing.statement import Statement, one_line, profile_words, read_statement

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
    allowed: tuple[str, ...] = ()


@dataclass
class Verification:
    """What was found. `files` is how many the manifest lists; `faults` are one line each, beside changed files."""

    path: str
    run: str | None = None
    site: str | None = None
    fabric: str | None = None
    sign_off: SignOff | None = None
    profile: str | None = None
    headline: str | None = None
    files: int = 0
    difference: Difference = field(default_factory=Difference)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    judged_again: bool = False
    made_again: tuple[str, ...] = ()
    signatures: list[SignatureCheck] = field(default_factory=list)

    @property
    def intact(self) -> bool:
        """True when everything is as it was signed, whoever signed it."""
        return not self.difference and not self.faults

    @property
    def good(self) -> bool:
        """True when everything is intact, somebody signed, and no signature is bad."""
        return self.intact and bool(self.signatures) and all(s.state != "bad" for s in self.signatures)

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        data = asdict(self)
        return {"good": self.good, "intact": self.intact, **data.pop("difference"), **data}


def verify(path: Path, allowed_signers: Path | None = None) -> Verification:
    """Check a bundle (file) or a run (folder); changes nothing. ConfigError only where there is nothing to check."""
    if allowed_signers is not None and not allowed_signers.is_file():
        raise ConfigError(f"{allowed_signers}: no such file of allowed signers; docs/signing.md shows its form")
    if path.is_dir():
        return verify_run(path, allowed_signers)
    if not path.is_file():
        raise ConfigError(f"{path}: no such bundle or run; give the file of a bundle, or the folder of a run")
    with tempfile.TemporaryDirectory(prefix="elastic-ai-verify-") as room:
        try:
            run_dir = extract_bundle(path, Path(room))
        except Damaged as fault:
            return Verification(path=str(path), faults=[f"{path.name}: {fault}"])
        found = verify_run(run_dir, allowed_signers)
        if found.run is not None and found.run != run_dir.name:
            found.faults.append(f"{path.name}: its folder is {run_dir.name}, its run is {found.run}")
    found.path = str(path)
    return found


def verify_run(run_dir: Path, allowed_signers: Path | None = None) -> Verification:
    """Check the run in the folder `run_dir`; changes nothing."""
    found = Verification(path=str(run_dir))
    _identify(run_dir, found)
    _signatures(run_dir, found, allowed_signers)
    try:
        listed = read_manifest(run_dir)
    except ConfigError as fault:
        unsigned = not found.signatures and not (run_dir / MANIFEST).exists()
        (found.notes if unsigned else found.faults).append(_inside(fault, run_dir))
    else:
        found.files = len(listed)
        found.difference = compare(run_dir, listed)
    if found.difference:
        found.notes.append("verdict and report were not made again, because files are not as they were")
    else:
        _follow(run_dir, found)
    return found


def _inside(fault: ConfigError, run_dir: Path) -> str:
    return str(fault).replace(f"{run_dir}/", "")


def _identify(run_dir: Path, found: Verification) -> None:
    try:
        info = load_json(run_dir / "run.json", RunInfo)
        found.run, found.site, found.fabric = one_line(info.run), one_line(info.site), one_line(info.fabric)
        verdict = load_json(run_dir / "verdict.json", VerdictDoc)
        found.sign_off, found.headline = verdict.sign_off, one_line(verdict.line)
        found.profile = profile_words(verdict)
    except ConfigError as fault:
        found.faults.append(_inside(fault, run_dir))


def _follow(run_dir: Path, found: Verification) -> None:
    """Verdict, reports and README once more from the data."""
    if found.sign_off is None:
        return
    try:
        other = _other_release(found)
        run = RunFiles(run_dir)  # read once for both
        verdict, fault = judged_again(run)
        if fault:
            found.faults.append(f"{fault}{other}")
        found.judged_again = not fault
        again = made_again(run)
        (found.notes if other else found.faults).extend(f"{words}{other}" for words in again.faults)
        found.notes += again.notes
        found.made_again = again.same
        readme = run_dir / README
        info = load_json(run_dir / "run.json", RunInfo)
        if readme.is_file() and readme.read_bytes() != readme_text(info, verdict).encode():
            words = f"{README}: is not what this release writes; it was edited, or made by another release{other}"
            (found.notes if other else found.faults).append(words)
    except ConfigError as fault:
        found.faults.append(_inside(fault, run_dir))


def _other_release(found: Verification) -> str:
    """Words where the run was signed with other releases of the toolkit than this one, whose reports look different."""
    here = release()
    signed = sorted({s.toolkit for s in found.signatures if s.toolkit and s.state != "bad"})
    return f" (signed with toolkit {', '.join(signed)}, this is {here})" if signed and here not in signed else ""


def _signatures(run_dir: Path, found: Verification, allowed_signers: Path | None) -> None:
    folder = run_dir / SIGNATURES
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []
    names = [name for name in names if not name.startswith(".")]
    statements = [n for n in names if n.endswith(".txt") and f"{n}.sig" in names]
    paired = {*statements, *(f"{n}.sig" for n in statements)}
    found.faults += [
        f"{SIGNATURES}/{name}: is no pair of statement and signature" for name in names if name not in paired
    ]
    numbers = [name.partition("-")[0] for name in statements]
    if numbers != [f"{n:02d}" for n in range(1, len(numbers) + 1)]:
        found.faults.append(f"{SIGNATURES}/: numbers are {', '.join(numbers)}: a signature was taken away or added")
    for name in statements:
        found.signatures.append(_signature(run_dir, name, found, allowed_signers))
    seen = [s.fingerprint for s in found.signatures if s.fingerprint]
    if len(set(seen)) != len(seen):
        found.notes.append("two signatures were made with the same key")


def _signature(run_dir: Path, name: str, found: Verification, allowed_signers: Path | None) -> SignatureCheck:
    file = f"{SIGNATURES}/{name}"
    path = run_dir / SIGNATURES / name
    signature = path.with_name(f"{name}.sig")
    if any(p.is_symlink() or not p.is_file() for p in (path, signature)):
        return SignatureCheck(file, "bad", "is not an ordinary file")
    try:
        content, whole = path.read_bytes(), ssh.whole(signature.read_bytes())
        statement = read_statement(content.decode(), file)
    except (ConfigError, OSError, UnicodeDecodeError):
        return SignatureCheck(file, "bad", "is not a statement of this toolkit, or its text was changed")
    if allowed_signers is None:
        checked = ssh.check(content, signature, statement.namespace)
    else:
        checked = ssh.check_signer(content, signature, statement.namespace, allowed_signers, statement.compact_time)
    bare = [] if whole else [f"{signature.name} is not as ssh-keygen writes it: something was cut or added"]
    wrong = [*([] if checked.good else [checked.why]), *bare, *_contradictions(run_dir, statement, checked, found)]
    state: SignatureState = "bad" if wrong else "intact" if allowed_signers is None else "trusted"
    return SignatureCheck(
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
        allowed=statement.allowed,
    )


def _contradictions(run_dir: Path, said: Statement, checked: ssh.Checked, found: Verification) -> Iterable[str]:
    """Where a statement speaks of something else than this run."""
    try:
        same = file_sha256(run_dir / MANIFEST) == said.manifest_sha256
    except ConfigError:
        same = False
    if not same:
        yield f"it signs another {MANIFEST}"
    if checked.fingerprint is not None and said.key != f"{checked.fingerprint} ({checked.kind})":
        yield f"its statement names another key ({said.key})"
    pairs: list[tuple[str, str, str | None]] = [
        ("run", said.run, found.run),
        ("site", said.site, found.site),
        ("fabric", said.fabric, found.fabric),
        ("sign-off", said.sign_off, found.sign_off),
        ("profile", said.profile, found.profile),
        ("headline", said.headline, found.headline),
    ]
    for what, stated, is_ in pairs:
        if is_ is not None and stated != is_:
            yield f"its statement says {what} {stated}, the run says {is_}"
