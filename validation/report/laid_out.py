"""Which PDF this user's toolkit made of which text: who signs the report that was just made need not lay it out again.

One small file each in the user's cache folder: its name is the hash of what went in (the HTML for paper, versions of
toolkit and PDF library), its content the hash of the PDF, and below that what it was made with. The answer is no
wherever that folder could be somebody else's. `toolkit report` and `toolkit verify` never ask, they lay out.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from validation.base.files import cache_folder, ours
from validation.report import pdf_record
from validation.report.pdf import pdf_bytes

_KEPT = 200


def layout_unless(standing: bytes | None) -> Callable[[str], bytes]:
    """HTML -> PDF: `standing` as it is where this user's toolkit made it of the same HTML, else laid out and noted."""

    def layout(html: str) -> bytes:
        if standing is not None and made_here(html, standing):
            return standing
        pdf = pdf_bytes(html)
        _note(html, pdf)
        return pdf

    return layout


def made_here(html: str, pdf: bytes) -> bool:
    """True where this user's toolkit, by the same versions, made exactly these bytes of exactly this HTML."""
    try:
        folder = _folder()
        if not ours(folder.parent, folder):
            return False
        said, _, record = (folder / _key(html)).read_text(encoding="utf-8").partition("\n")
        if said != hashlib.sha256(pdf).hexdigest():
            return False
        if record:
            pdf_record.remember(pdf_record.PdfRecord.model_validate_json(record, strict=True))
        return True
    except (OSError, RuntimeError, ValueError):
        return False


def _note(html: str, pdf: bytes) -> None:
    with contextlib.suppress(OSError, RuntimeError):  # without it the next one takes longer, and that is all
        folder = _folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        record = pdf_record.record_of(pdf)
        made_with = b"" if record is None else record.text()
        (folder / _key(html)).write_bytes(hashlib.sha256(pdf).hexdigest().encode() + b"\n" + made_with)
        for old in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
            old.unlink()


def _folder() -> Path:
    """OSError where this user has no home."""
    return cache_folder("pdf")


def _key(html: str) -> str:
    parts = (*map(_version, ("elastic-ai-toolkit", "weasyprint", "pydyf")), html)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
