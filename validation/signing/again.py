"""Judges a run and makes its reports once more, in memory, and says where that differs from what stands in the run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from validation.load import ConfigError
from validation.model import VerdictDoc
from validation.rejudge import judge_files
from validation.report.documents import read_run
from validation.report.formats import FILES, make
from validation.runfiles import RunFiles

_MEASUREMENTS_WITH_PDF = 300


@dataclass(frozen=True)
class Again:
    """`faults`: one line for each file that does not follow from the data. `same`: reports that are byte for byte what
    is made from the data now. `notes`: what could not be made here, and why.
    """

    faults: tuple[str, ...]
    same: tuple[str, ...]
    notes: tuple[str, ...]


def judged_again(run: Path | RunFiles) -> tuple[VerdictDoc, str | None]:
    """verdict.json, and one line where judging the run's files again gives another verdict."""
    run = RunFiles.of(run)
    stands = run.verdict
    fresh = judge_files(run)
    if fresh == stands:
        return stands, None
    old, new = stands.model_dump(), fresh.model_dump()
    what = [key for key in new if old[key] != new[key]]
    odd = [v.id for v, w in zip(stands.criteria, fresh.criteria, strict=False) if v != w]
    where = ", ".join(what) + (f" ({', '.join(odd[:8])})" if odd else "")
    return stands, f"verdict.json: is not what judging the results gives: {where}; judged again: {fresh.line}"


def made_again(run: Path | RunFiles, pdf: bool = True) -> Again:
    """Compare the reports that stand in the run with those that its data give.

    The PDF takes most of the time: it is left out where `pdf` is False, and for large runs.
    """
    run = RunFiles.of(run)
    here = {name: path for name, file in FILES.items() if (path := run.folder / file).is_file()}
    documents = read_run(run)
    cheap = pdf and len(documents.plan.measurements) <= _MEASUREMENTS_WITH_PDF
    made, left_out = make(documents, [name for name in here if cheap or name != "pdf"])
    faults, same, notes = [], [], []
    for name, path in here.items():
        if name not in made:
            notes.append(f"{path.name}: was not made again to compare: {left_out.get(name, 'that takes long')}")
            continue
        try:
            equal = path.read_bytes() == made[name]
        except OSError as fault:
            raise ConfigError(f"{path}: cannot be read: {fault.strerror or fault}") from None
        if equal:
            same.append(path.name)
        elif name == "pdf":
            notes.append(
                f"{path.name}: differs from the one made here; fonts and PDF library of this machine decide too"
            )
        else:
            faults.append(
                f"{path.name}: is not what the data of the run give; it was edited, or made by another release"
            )
    notes += [f"{file}: is not there" for name, file in FILES.items() if name not in here]
    return Again(tuple(faults), tuple(same), tuple(notes))
