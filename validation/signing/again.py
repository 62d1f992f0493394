"""Judges a run and makes its reports once more, in memory, and says where that differs from what stands in the run."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from validation.model import VerdictDoc
from validation.model.load import load_json, read_bytes, read_source
from validation.report.documents import RunDocuments, read_run
from validation.report.formats import FILES, make
from validation.report.pdf_record import NAME, PdfRecord, record_of
from validation.run.read import Run, read
from validation.run.rejudge import judge_files
from validation.run.rules_hashes import Rules
from validation.signing.pdf_words import differences

_LOOK = "verify where these are installed, or read report.html in its place"


@dataclass(frozen=True)
class Again:
    """`faults`: one line for each file that does not follow from the data. `same`: reports that are byte for byte what
    is made from the data now. `unchecked`: what could not be made here to compare, and why. `notes`: that, and what is
    not there. `rules`: whose rules the run is of. `documents`: what the reports were made of.
    """

    faults: tuple[str, ...]
    same: tuple[str, ...]
    unchecked: tuple[str, ...]
    notes: tuple[str, ...]
    documents: RunDocuments

    @property
    def rules(self) -> Rules:
        """Of the documents."""
        return self.documents.rules


def judged_again(run: Path | Run) -> tuple[VerdictDoc, str | None]:
    """verdict.json, and one line where judging the run's files again gives another verdict."""
    run = read(run)
    stands = run.verdict
    fresh = judge_files(run)
    if fresh == stands:
        return stands, None
    old, new = stands.model_dump(), fresh.model_dump()
    what = [key for key in new if old[key] != new[key]]
    odd = [v.id for v, w in zip(stands.criteria, fresh.criteria, strict=False) if v != w]
    where = ", ".join(what) + (f" ({', '.join(odd[:8])})" if odd else "")
    return stands, f"verdict.json: is not what judging the results gives: {where}; judged again: {fresh.line}"


def made_again(run: Path | Run, pdf: bool = True) -> Again:
    """Compare the reports that stand in the run with those that its data give.

    The PDF takes most of the time: it is left out where `pdf` is False.
    """
    run = read(run)
    here = {name: path for name, file in FILES.items() if (path := run.folder / file).is_file()}
    documents = read_run(run)
    made, left_out = make(documents, [name for name in here if pdf or name != "pdf"])
    faults, same, unchecked = [], [], []
    follows = True
    for name, path in here.items():
        if name not in made:
            why = left_out.get(name, "it was not asked for")
            unchecked.append(f"{path.name}: was not made again to compare: {why}")
            continue
        stands = read_bytes(path)
        if name == "pdf":
            fault, open_ = _pdf(run.folder, stands, made[name], follows)
            faults += fault
            unchecked += open_
            same += [] if fault or open_ else [path.name]
        elif stands == made[name]:
            same.append(path.name)
        else:
            follows = False
            faults.append(
                f"{path.name}: is not what the data of the run give; it was edited, or made by another release"
            )
    notes = [*unchecked, *(f"{file}: is not there" for name, file in FILES.items() if name not in here)]
    return Again(tuple(faults), tuple(same), tuple(unchecked), tuple(notes), documents)


def _pdf(folder: Path, stands: bytes, made: bytes, follows: bool) -> tuple[list[str], list[str]]:
    """(what is wrong, what could not be checked) with the PDF of a run, beside the one that was made here.

    `follows`: whether the HTML, which is of the same text, is what the data give.
    """
    return pdf_faults(folder, FILES["pdf"], NAME, stands, made, follows)


def pdf_faults(
    folder: Path, name: str, record: str, stands: bytes, made: bytes, follows: bool
) -> tuple[list[str], list[str]]:
    """(what is wrong, what could not be checked) with the PDF `name`, whose making the file `record` tells, beside the
    one that was made here. `follows`: whether what is said in it is what the data give, as far as that is known.
    """
    here = record_of(made)
    if not (folder / record).exists():
        if stands == made:
            return [], []
        return [], [f"{name}: differs from the one made here, and no {record} says by which fonts it was made; {_LOOK}"]
    said = load_json(read_source(folder / record), PdfRecord)
    if said.pdf_sha256 != hashlib.sha256(stands).hexdigest():
        return [f"{record}: names another {name} than the one that is there"], []
    if here is None:
        return [], [f"{name}: with what it is made here is not known; {_LOOK}"]
    missing = said.missing_here(here)
    if stands == made:
        words = f"{record}: names other parts than those that make the same {name} here"
        return [], [f"{words}: {'; '.join(missing)}" if missing else words] if said != here else []
    if not missing:
        return [f"{name}: is not what the data of the run give, by the same fonts and libraries; it was edited"], []
    odd = differences(stands, made) if follows else ()
    if odd:
        return [f"{name}: {words}" for words in odd], []
    return [], [
        f"{name}: not checked byte by byte: this machine lacks what it was made with: {'; '.join(missing)}; its words "
        f"are those of the one made here; {_LOOK}"
        if follows
        else f"{name}: not checked: this machine lacks what it was made with: {'; '.join(missing)}; {_LOOK}"
    ]
