"""`toolkit verify`: check a bundle or a run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolkit import answers, rundir
from toolkit.command_class import command
from toolkit.commands.options import json_option, kept_runs_option
from toolkit.errors import UsageFault
from toolkit.exits import Exit, epilogue
from toolkit.working import working
from validation.base.counting import number_of
from validation.base.visible import visible

if TYPE_CHECKING:
    from validation.signing.verify import Verification

_SHOWN = 50
_WIDE = 2000
_CODES = {"not-checked": Exit.INCOMPLETE, "other-rules": Exit.INCOMPLETE, "expired": Exit.INCOMPLETE}


@command(epilog=epilogue("verify"))
@click.argument("path", required=False, type=click.Path(path_type=Path), metavar="[BUNDLE|RUN]")
@click.option(
    "--allowed-signers",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Accept the keys of this file, in OpenSSH's format ALLOWED SIGNERS (man ssh-keygen).",
)
@click.option(
    "--rules",
    metavar="SHA256",
    help="Accept these rules, which are of no release: their hash, as the report prints it.",
)
@json_option
@kept_runs_option
def verify(path: Path | None, allowed_signers: Path | None, rules: str | None, as_json: bool, runs_dir: Path) -> None:
    """Verify a run or bundle and its signatures.

    Checks files, verdict, report, rules and signatures. Without a name it is the newest run.

    Each file that changed, is missing or was added is named. The verdict is judged once more from the results, the
    report made once more and compared. Where rules are not a release's, that is said, and so is what cannot be checked
    on this machine: then it ends with 3. Without --allowed-signers a good signature says that the run is as somebody
    signed it, not whose key it was; a line of that file is `a@example.com ssh-ed25519 AAAA...`.
    Nothing is written.

    \b
    toolkit verify handover.zip
    toolkit verify handover.zip --allowed-signers signers
    toolkit verify handover.zip --rules 0f3a...   a site's own rules that supplier and customer agreed on
    toolkit verify runs/2026-11-21T10-15-00Z-tcp10 --json | jq .changed
    """
    from validation.signing.verify import verify as check

    if path is None or (not path.exists() and (runs_dir / path).is_dir()):
        path = rundir.find(runs_dir, str(path) if path else None)
    if rules is not None and not re.fullmatch(r"[0-9a-fA-F]{64}", rules):
        raise UsageFault("--rules: 64 hexadecimal digits are wanted: the sha256 of the rules, as the report shows it")
    with working(f"verifying {path}: judging and reporting once more"):
        found = check(path, allowed_signers, rules)
    if as_json:
        answers.say("verification", found.document())
    else:
        for line in _lines(found):
            click.echo(line)
    raise SystemExit(Exit.OK if found.good else _CODES.get(found.answer, Exit.FAILED))


def _lines(found: Verification) -> list[str]:
    from validation.signing.last_day import ENDS

    lines = []
    if found.sign_off == "INSPECTION":
        lines.append("INSPECTION: one machine by no inventory; a signature here is not an acceptance")
    if found.sign_off == "CONSTRUCTED EXAMPLE":
        lines.append("CONSTRUCTED EXAMPLE: its data were made up; a signature here is not an acceptance")
    elif found.sign_off == "REHEARSAL":
        lines.append("REHEARSAL: virtual hardware took part; a signature here is not an acceptance")
    elif found.sign_off:
        lines.append(f"{found.sign_off}: the sign-off of this run")
    lines.append(f"{found.path}: run {found.run or '?'}, site {found.site or '?'}, fabric {found.fabric or '?'}")
    if found.headline:
        lines.append(found.headline)
    if found.profile:
        lines.append(f"acceptance profile: {found.profile}")
    words = [*found.difference.words(), *found.faults]
    lines += [f"  {word}" for word in words[:_SHOWN]]
    if len(words) > _SHOWN:
        lines.append(f"  and {len(words) - _SHOWN} more; --json lists all")
    lines += [f"  not checked: {word}" for word in found.unchecked[:_SHOWN]]
    if len(found.unchecked) > _SHOWN:
        lines.append(f"  and {len(found.unchecked) - _SHOWN} more; --json lists all")
    if found.rules:
        lines.append(f"rules: {found.rules} (sha256 {found.rules_sha256}){', as agreed on' * found.rules_agreed}")
    if found.files and not found.difference:
        lines.append(f"files: all {found.files} match the manifest")
    if found.judged_again:
        lines.append("verdict: judged again from the results: the same")
    if found.made_again:
        lines.append(f"report: made again from the data, the same bytes: {', '.join(found.made_again)}")
    lines += [f"note: {note}" for note in found.notes]
    for s in found.signatures:
        who = f"{s.name}, {s.company}, {s.time}: " if s.name else ""
        lines.append(f"{s.file}: {'BAD: ' if s.state == 'bad' else ''}{who}{s.why}")
        if s.fingerprint:
            lines.append(f"  key {s.fingerprint}, signed as {s.sign_off}")
        lines += [f"  kept although it may contain a secret: {file}" for file in s.allowed]
    if found.last_day:
        word = "expired: its last day was" if found.expired else "holds until"
        lines.append(f"paper: {word} {found.last_day}; ended before by {ENDS}")
    elif found.signatures:
        lines.append("paper: names no last day, as those of earlier releases; nothing in it says how long it holds")
    if not found.signatures and found.files:
        lines.append("signatures: none, though it has a manifest, which is made for them: they were taken out, or "
                     "signing was broken off")  # fmt: skip
    elif not found.signatures:
        lines.append("signatures: none; nobody has signed this run")
    lines.append(_conclusion(found))
    return [_fit(visible(line)) for line in lines]


def _fit(line: str) -> str:
    """A line of which no name in somebody's bundle is longer than a screen."""
    return (
        line if len(line) <= _WIDE else f"{line[:_WIDE]}... ({number_of(len(line), 'character')}; --json has them all)"
    )


def _conclusion(found: Verification) -> str:
    count = len(found.difference.words()) + len(found.faults)
    return {
        "not-intact": f"NOT INTACT: {count} {'thing is' if count == 1 else 'things are'} not as signed",
        "not-signed": "NOT SIGNED",
        "not-verified": "NOT VERIFIED: the files are intact, the signatures are not good",
        "not-checked": f"NOT ALL CHECKED: the files are as signed; {len(found.unchecked)} "
        f"{'thing' if len(found.unchecked) == 1 else 'things'} could not be checked here",
        "other-rules": "INTACT, BY OTHER RULES: as it was signed, by rules that are no release's; where they were "
        f"agreed on: --rules {found.rules_sha256}",
        "expired": f"EXPIRED: authentic, as it was signed; its last day was {found.last_day}: measure and sign again",
        "intact": "INTACT: as it was signed; to check whose keys these are, use --allowed-signers",
        "verified": "VERIFIED: intact, and signed with keys of the allowed signers only",
    }[found.answer]
