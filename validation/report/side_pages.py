"""Pages that are made of several runs: HTML, PDF of the same, and their document as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from validation.base.files import replace
from validation.model.load import ConfigError
from validation.report.formats import Written
from validation.report.pdf import PdfUnavailable, pdf_bytes

D = TypeVar("D", bound=BaseModel)


def write_pages(
    files: Mapping[str, str], document: D, as_html: Callable[[D], str], formats: Iterable[str], folder: Path
) -> Written:
    """Write the asked formats of `files` (html, pdf, json -> name of the file) into `folder`, which is made.

    Nothing is written before all is made. ConfigError where the disk refuses.
    """
    makers: dict[str, Callable[[], bytes]] = {
        "html": lambda: as_html(document).encode(),
        "pdf": lambda: pdf_bytes(as_html(document)),
        "json": lambda: (document.model_dump_json(indent=2, by_alias=True) + "\n").encode(),
    }
    wanted, written = set(formats), Written()
    made: dict[str, bytes] = {}
    for name in files:
        if name in wanted:
            try:
                made[name] = makers[name]()
            except PdfUnavailable as fault:
                written.left_out[name] = str(fault)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise ConfigError(f"{folder}: cannot be written: {fault.strerror or fault}; give another place") from None
    for name, content in made.items():
        written.paths[name] = replace(folder / files[name], content)
    return written
