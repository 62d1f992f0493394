"""The certificates of a run once more: what they say is held against the run and its statements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from validation.model.load import ConfigError, load_json, read_bytes, read_source
from validation.report.pdf_record import PdfRecord
from validation.report.unavailable import Unavailable
from validation.run.kept import odd_json
from validation.signing.again import Again, pdf_faults
from validation.signing.certificate import certificate
from validation.signing.sign import read_signed, signature_files
from validation.signing.signatures import MOST, certificate_faults
from validation.signing.statement import Statement

Certified = tuple[Statement, list[str], list[str]]
"""A statement with a certificate; what is wrong with that, and what of it could not be checked, one line each."""


def certified_again(run_dir: Path, again: Again) -> Iterator[Certified]:
    """Of each statement that names a certificate which is as it was signed; ConfigError where one cannot be read."""
    statements = [read_signed(path) for path in signature_files(run_dir)[:MOST]]
    for number, one in enumerate(statements, 1):
        if one.certificate and not certificate_faults(run_dir, one.certificate):
            yield (one, *_again(run_dir, again, statements[:number]))


def _again(run_dir: Path, again: Again, statements: list[Statement]) -> tuple[list[str], list[str]]:
    names = [name for name, _ in statements[-1].certificate]
    name, record = names
    try:
        made = certificate(again.documents, statements)
    except Unavailable as fault:
        return [], [f"{name}: was not made again to compare: {fault}"]
    if (made.pdf[0], made.record[0]) != (name, record):
        return [f"{name}: is not named as the certificate of its statement is"], []
    try:
        faults, unchecked = pdf_faults(
            run_dir, name, record, read_bytes(run_dir / name), made.pdf[1], follows=not again.faults
        )
        odd = odd_json(read_source(run_dir / record).text, load_json(run_dir / record, PdfRecord))
    except ConfigError as fault:
        return [str(fault).replace(f"{run_dir}/", "")], []
    return faults, [*unchecked, *([f"{record}: {odd}"] if odd else [])]
