"""Checking a run directory: every file, the verdict, the reports, the rules, and each signature.

What a customer reads is held against what was signed: byte by byte where this machine can make the same bytes. What it
cannot make is *not checked*, and then the whole is not verified.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any, Literal

from validation.base.temporary import room as private
from validation.model import RunInfo, SignOff, VerdictDoc
from validation.model.load import ConfigError, load_json, read_bytes
from validation.report.customer import NAME as REPORT_YML
from validation.rules.release import release
from validation.run.conflicts import same_rules
from validation.run.read import Run, read
from validation.run.rules_hashes import Rules
from validation.signing import MANIFEST
from validation.signing.again import Again, judged_again, made_again
from validation.signing.bundle import Damaged, extract_bundle
from validation.signing.certified import certified_again
from validation.signing.forms import odd_forms, own_words
from validation.signing.last_day import expired
from validation.signing.manifest import Difference, compare, entries, read_manifest, unnamed
from validation.signing.planned import planned_again
from validation.signing.readme import README, readme_text
from validation.signing.signatures import SignatureCheck, Span, check_signatures, span
from validation.signing.statement import one_line, profile_words
from validation.signing.strays import ignored, strays
from validation.signing.superseded import earlier

Answer = Literal["not-intact", "not-signed", "not-verified", "not-checked", "other-rules", "expired", "intact",
                 "verified"]  # fmt: skip
"""What verifying comes to, the worst first."""


@dataclass
class Verification:
    """What was found. `files` is how many the manifest lists; `faults` are one line each, beside changed files.

    `unchecked`: what could not be checked here, one line each. `other_rules`: where the rules of the run are not those
    of a release; `rules_agreed`: whoever verifies said that these were agreed on.
    """

    path: str
    run: str | None = None
    site: str | None = None
    fabric: str | None = None
    sign_off: SignOff | None = None
    profile: str | None = None
    outcome: str | None = None
    headline: str | None = None
    files: int = 0
    difference: Difference = field(default_factory=Difference)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    judged_again: bool = False
    made_again: tuple[str, ...] = ()
    unchecked: list[str] = field(default_factory=list)
    rules: str | None = None
    rules_sha256: str | None = None
    other_rules: tuple[str, ...] = ()
    rules_agreed: bool = False
    trusted: bool = False
    today: date = field(default_factory=lambda: datetime.now(timezone.utc).date())
    signatures: list[SignatureCheck] = field(default_factory=list)

    @property
    def intact(self) -> bool:
        """True when everything is as it was signed, whoever signed it."""
        return not self.difference and not self.faults

    @property
    def last_day(self) -> str | None:
        """Until when the paper holds, by the first of its good signatures' last days; None where none names one."""
        return min((s.last_day for s in self.signatures if s.state != "bad" and s.last_day), default=None)

    @property
    def expired(self) -> bool:
        """Whether that day has passed: what was signed is as authentic as before."""
        return self.last_day is not None and expired(self.last_day, self.today)

    @property
    def answer(self) -> Answer:
        """What all of it comes to."""
        if not self.intact:
            return "not-intact"
        if not self.signatures:
            return "not-signed"
        if any(s.state == "bad" for s in self.signatures):
            return "not-verified"
        if self.unchecked:
            return "not-checked"
        if self.other_rules and not self.rules_agreed:
            return "other-rules"
        if self.expired:
            return "expired"
        return "verified" if self.trusted else "intact"

    @property
    def good(self) -> bool:
        """True when everything is intact and was checked, somebody signed, no signature is bad, and the rules are those
        of a release or were agreed on.
        """
        return self.answer in ("intact", "verified")

    def document(self) -> dict[str, Any]:
        """For `--json`."""
        data = asdict(self)
        del data["today"]
        data |= {"last_day": self.last_day, "expired": self.expired}
        return {"answer": self.answer, "good": self.good, "intact": self.intact, **data.pop("difference"), **data}


def verify(path: Path, allowed_signers: Path | None = None, rules: str | None = None) -> Verification:
    """Check a bundle (file) or a run (folder); changes nothing. ConfigError only where there is nothing to check.

    `rules`: the SHA-256 of the rules that were agreed on, where these are not a release's.
    """
    if allowed_signers is not None and not allowed_signers.is_file():
        raise ConfigError(
            f"{allowed_signers}: no such file of allowed signers; docs/explanation/signing.md shows its form"
        )
    if path.is_dir():
        return verify_run(path, allowed_signers, rules)
    if not path.is_file():
        raise ConfigError(f"{path}: no such bundle or run; give the file of a bundle, or the folder of a run")
    with private("elastic-ai-verify") as room:
        try:
            run_dir = extract_bundle(path, Path(room))
        except Damaged as fault:
            return Verification(path=str(path), faults=[f"{path.name}: {fault}"])
        found = verify_run(run_dir, allowed_signers, rules)
        if found.run is not None and found.run != run_dir.name:
            found.faults.append(f"{path.name}: its folder is {run_dir.name}, its run is {found.run}")
    found.path = str(path)
    return found


def verify_run(run_dir: Path, allowed_signers: Path | None = None, rules: str | None = None) -> Verification:
    """Check the run in the folder `run_dir`; changes nothing."""
    run = read(run_dir)  # read once for all
    found, names = _hashed(run, allowed_signers)
    if names is None:
        return found
    if found.difference:
        found.notes.append("verdict and report were not made again, because files are not as they were")
    else:
        _follow(run, names, found, rules)
    return found


def hashed_run(run_dir: Path) -> Verification:
    """Hashes and signatures of the run in the folder `run_dir` alone: whether its data are those that were signed.
    Verdict and reports are not made again.
    """
    return _hashed(read(run_dir), None)[0]


def _hashed(run: Run, allowed_signers: Path | None) -> tuple[Verification, list[str] | None]:
    """What hashes and signatures say; the run's files, None where something in it is no file."""
    run_dir = run.folder
    found = Verification(path=str(run_dir), trusted=allowed_signers is not None)
    now = datetime.now(timezone.utc)
    names = _names(run_dir, found)
    if names is None:
        return found, None
    ran = _identify(run, found, now)
    said = {
        "run": found.run, "site": found.site, "fabric": found.fabric, "sign-off": found.sign_off,
        "outcome": found.outcome, "profile": found.profile, "headline": found.headline,
    }  # fmt: skip
    found.signatures, faults = check_signatures(run_dir, said, allowed_signers, ran, now)
    found.faults += faults
    try:
        listed = read_manifest(run_dir)
    except ConfigError as fault:
        unsigned = not found.signatures and not (run_dir / MANIFEST).exists()
        (found.notes if unsigned else found.faults).append(_inside(fault, run_dir))
    else:
        found.files = len(listed)
        found.difference = compare(run_dir, listed)
        for signature in found.signatures:
            odd = [name for name in signature.allowed if name not in listed]
            found.faults += [f"{signature.file}: allows {', '.join(odd[:3])}: no file of the run"] if odd else []
    return found, names


def _names(run_dir: Path, found: Verification) -> list[str] | None:
    """The run's files; None where something in it is none, so that nothing of it is read."""
    try:
        names = list(entries(run_dir))
        found.faults += [f"{name}: is in no manifest; take it out" for name in unnamed(run_dir)]
    except ConfigError as fault:
        found.faults.append(_inside(fault, run_dir))
        return None
    odd = [name for name, ordinary in names if not ordinary]
    if odd and not (run_dir / MANIFEST).exists():
        found.faults += [f"{name}: is a link, a device, or has an unusable name" for name in odd]
        return None
    return [name for name, _ in names]


def _inside(fault: ConfigError, run_dir: Path) -> str:
    return str(fault).replace(f"{run_dir}/", "")


def _identify(run: Run, found: Verification, now: datetime) -> Span:
    """What the run says of itself; its times."""
    ran = Span(None, None)
    try:
        info = load_json(_ordinary(run.folder / "run.json"), RunInfo)
        found.run, found.site, found.fabric = one_line(info.run), one_line(info.site), one_line(info.fabric)
        verdict = load_json(_ordinary(run.folder / "verdict.json"), VerdictDoc)
        found.sign_off, found.headline, found.outcome = verdict.sign_off, one_line(verdict.line), verdict.outcome
        found.profile = profile_words(verdict)
        _ordinary(run.folder / "results.jsonl")
        ran = span(run)
        found.faults += ran.faults(now)
    except ConfigError as fault:
        found.faults.append(_inside(fault, run.folder))
    return ran


def _ordinary(path: Path) -> Path:
    """A file of the run: what is a pipe or a link is not read."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ConfigError(f"{path}: is no ordinary file; restore it from a copy")
    return path


def _follow(run: Run, names: list[str], found: Verification, agreed: str | None) -> None:
    """Verdict, reports and README once more from the data; whose rules; what nothing of the run speaks of."""
    if found.sign_off is None:
        return
    run_dir = run.folder
    try:
        other = _other_release(found)
        verdict, fault = judged_again(run)
        if fault:
            found.faults.append(f"{fault}{other}")
        found.judged_again = not fault
        again = made_again(run)
        (found.unchecked if other else found.faults).extend(f"{words}{other}" for words in again.faults)
        found.unchecked += again.unchecked
        found.notes += [note for note in again.notes if note not in again.unchecked]
        found.made_again = again.same
        _certificates(run_dir, again, found)
        _rules(again.rules, agreed, found)
        _readme(run, verdict, again.rules, other, found)
        if not same_rules(run.info, release()):
            found.unchecked += planned_again(run)
        found.unchecked += odd_forms(run)
        found.unchecked += ignored(run)
        found.unchecked += [f"{name}: nothing in the run names it" for name in strays(run, names)]
        if (run_dir / REPORT_YML).exists():
            found.notes.append(f"{REPORT_YML}: these of the report are the site's own: {own_words(run_dir)}")
        found.unchecked += earlier(run_dir, names, again.rules)
    except ConfigError as fault:
        found.faults.append(_inside(fault, run_dir))


def _certificates(run_dir: Path, again: Again, found: Verification) -> None:
    """Each certificate once more, of the run and the statements up to its own."""
    if any(check.state == "bad" and check.name is None for check in found.signatures):
        return  # a statement that cannot be read
    found.notes += [
        f"{check.file}: has no certificate; none could be made where it was signed"
        for check in found.signatures
        if check.certificate is None and check.toolkit == release()
    ]
    for check, faults, unchecked in certified_again(run_dir, again):
        if check.toolkit != release():
            faults, unchecked = [], [*faults, *unchecked]
        found.faults += faults
        found.unchecked += unchecked
        if not faults and not unchecked:
            found.made_again += (check.certificate[0][0],)


def _rules(rules: Rules, agreed: str | None, found: Verification) -> None:
    found.rules, found.rules_sha256, found.other_rules = rules.words, rules.sha256, rules.other
    for signature in found.signatures:
        said = signature.rules or ""
        mine = signature.toolkit == release()  # earlier releases said nothing of them, or in other words
        if said != one_line(rules.line()) if mine else said and f"(sha256 {rules.sha256})" not in said:
            found.faults.append(f"{signature.file}: signs other rules than the run's: {said or 'it names none'}")
    if agreed is not None:
        found.rules_agreed = agreed.lower() == rules.sha256
        if not found.rules_agreed:
            found.faults.append(f"the rules of the run have sha256 {rules.sha256}, not {agreed}, as was agreed on")


def _readme(run: Run, verdict: VerdictDoc, rules: Rules, other: str, found: Verification) -> None:
    path = run.folder / README
    if not path.exists():
        if found.signatures:
            found.faults.append(f"{README}: is missing, though every run that is signed has it")
    elif read_bytes(path) != readme_text(run.info, verdict, rules).encode():
        words = f"{README}: is not what this release writes; it was edited, or made by another release{other}"
        (found.unchecked if other else found.faults).append(words)


def _other_release(found: Verification) -> str:
    """Words where the run was signed with other releases of the toolkit than this one, whose reports look different."""
    here = release()
    signed = sorted({s.toolkit for s in found.signatures if s.toolkit and s.state != "bad"})
    return f" (signed with toolkit {', '.join(signed)}, this is {here})" if signed and here not in signed else ""
