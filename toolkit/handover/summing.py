"""Runs of units become one sum: each is verified, and what is found of it is handed to the page."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from toolkit.inventory import read_inventory
from toolkit.packed_runs import opened
from validation.model.load import read_bytes
from validation.report.documents import read_run
from validation.run.read import read
from validation.signing import MANIFEST
from validation.signing.statement import one_line, profile_words
from validation.signing.sums import Again, SumDoc, SumSigner, SumUnit, Unit, beside, sum_of
from validation.signing.verify import Verification, verify_run

_WHY = {
    "not-intact": "is not as it was signed",
    "not-signed": "nobody has signed it",
    "not-verified": "a signature is not good",
}


def summed(
    runs_dir: Path, runs: Sequence[str], inventory: Path | None, now: Callable[[str], None], again: bool = False
) -> SumDoc:
    """The sum of runs or bundles. `again`: of a signed one. ConfigError or UsageFault where they make none."""
    return sum_of(_units(runs_dir, runs, now), _declared(inventory), again)


def summed_again(
    runs_dir: Path, runs: Sequence[str], inventory: Path | None, now: Callable[[str], None], signed: SumDoc
) -> Again:
    """What a signed sum is beside the sum of these runs, made on this machine with this inventory."""
    return beside(signed, _units(runs_dir, runs, now), _declared(inventory))


def _declared(inventory: Path | None) -> list[str] | None:
    return None if inventory is None else [node.name for node in read_inventory(inventory).nodes]


def _units(runs_dir: Path, runs: Sequence[str], now: Callable[[str], None]) -> list[Unit]:
    units = []
    with ExitStack() as held:
        for number, run in enumerate(runs, 1):
            now(f"verifying {run}, {number} of {len(runs)}")
            units.append(_unit(run, held.enter_context(opened(runs_dir, run))))
    return units


def _unit(path: str, folder: Path) -> Unit:
    run, found = read(folder), verify_run(folder)
    verdict, info = run.verdict, run.info
    signed = (folder / MANIFEST).is_file() and found.signatures
    return Unit(
        path=path,
        site=info.site,
        fabric=info.fabric,
        toolkit=info.toolkit_version,
        rules_sha256=found.rules_sha256 or "",
        answer=found.answer,
        why=_why(found),
        verdict=verdict,
        servers=read_run(run).parts,
        unchecked=tuple(found.unchecked),
        other_rules=found.other_rules,
        expired=found.expired,
        of=SumUnit(
            run=info.run,
            unit=info.unit,
            day=info.day.isoformat() if info.day else "",
            nodes=tuple(node.name for node in run.topology.nodes),
            profile=profile_words(verdict),
            headline=one_line(verdict.line),
            passed=sum(c.verdict == "pass" for c in verdict.criteria),
            waived=tuple(c.id for c in verdict.criteria if c.verdict == "waived"),
            not_measured=tuple(c.id for c in verdict.criteria if c.verdict == "not-measured" and c.owed),
            points=verdict.points,
            last_day=found.last_day or "",
            signers=tuple(
                SumSigner(name=s.name or "", company=s.company or "", time=s.time or "", key=s.fingerprint or "")
                for s in found.signatures
            ),
            manifest_sha256=hashlib.sha256(read_bytes(folder / MANIFEST)).hexdigest() if signed else "",
        ),
    )


def _why(found: Verification) -> str:
    odd = [
        *found.difference.words(),
        *found.faults,
        *(f"{s.file}: {s.why}" for s in found.signatures if s.state == "bad"),
    ]
    return f"{_WHY.get(found.answer, found.answer)}{f' ({odd[0]})' if odd else ''}"
