"""What decided the bytes of a PDF, beside its text: fonts with their hashes, and the libraries that laid it out.

A run that is signed holds it as `report-pdf.json`, so that whoever verifies knows whether the same machine's parts are
there, and a PDF that differs was changed, or whether this machine could not have made these bytes.
"""

from __future__ import annotations

import hashlib
import sys
import zlib
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pydantic import Field

from validation.model.base import Model
from validation.rules.release import release

NAME = "report-pdf.json"
_PACKAGES = ("weasyprint", "pydyf", "fonttools", "tinycss2", "tinyhtml5", "cssselect2", "pyphen", "pillow", "brotli")
_SHA256 = r"^[0-9a-f]{64}$"
_MOST = 8


class UsedFont(Model):
    """A font of which glyphs are drawn: its name in the PDF without the mark of its subset, and its file's SHA-256."""

    name: str
    sha256: str = Field(pattern=_SHA256)


class PdfRecord(Model):
    """What a PDF was made with. `libraries`: name -> version."""

    pdf_sha256: str = Field(pattern=_SHA256)
    toolkit: str
    libraries: dict[str, str]
    fonts: tuple[UsedFont, ...]

    def text(self) -> bytes:
        """As it stands in a run."""
        return "".join(self.written()).encode()

    def missing_here(self, here: PdfRecord) -> list[str]:
        """What of this machine (`here`: the record of the PDF that was made on it) is not what made this PDF."""
        mine, theirs = {f.name: f.sha256 for f in here.fonts}, {f.name: f.sha256 for f in self.fonts}
        fonts = [
            f"font {name} (sha256 {sha256[:12]}...)" for name, sha256 in theirs.items() if mine.get(name) != sha256
        ]
        others = [name for name in mine if name not in theirs]
        fonts += [f"in place of which it takes {', '.join(others)}"] if others else []
        libraries = [
            f"{name} {self.libraries.get(name, 'none')} (here {here.libraries.get(name, 'none')})"
            for name in sorted({*self.libraries, *here.libraries})
            if self.libraries.get(name) != here.libraries.get(name)
        ]
        if self.toolkit != here.toolkit:
            libraries.append(f"toolkit {self.toolkit} (here {here.toolkit})")
        return [*fonts, *libraries]


_made: dict[str, PdfRecord] = {}


def note(pdf: bytes, weasyprint: Any, document: Any) -> None:
    """Remember what a PDF was made with, which this process has just laid out."""
    fonts = {_name(font): hashlib.sha256(font.file_content).hexdigest() for font in _fonts(document)}
    remember(
        PdfRecord(
            pdf_sha256=hashlib.sha256(pdf).hexdigest(),
            toolkit=release(),
            libraries=_libraries(weasyprint),
            fonts=tuple(UsedFont(name=name, sha256=sha256) for name, sha256 in sorted(fonts.items())),
        )
    )


def remember(record: PdfRecord) -> None:
    """Of the PDF with that hash."""
    while len(_made) >= _MOST:
        del _made[next(iter(_made))]
    _made[record.pdf_sha256] = record


def record_of(pdf: bytes) -> PdfRecord | None:
    """What a PDF was made with; None of one that this process neither laid out nor knows of."""
    return _made.get(hashlib.sha256(pdf).hexdigest())


def _fonts(document: Any) -> list[Any]:
    """The fonts that a document which was written had embedded."""
    return list(getattr(document, "fonts", {}).values())


def _name(font: Any) -> str:
    return str(font.name.decode("utf-8", "replace")).lstrip("/").partition("+")[2]


def _libraries(weasyprint: Any) -> dict[str, str]:
    found = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}", "zlib": zlib.ZLIB_RUNTIME_VERSION}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    ffi = getattr(getattr(weasyprint, "text", None), "ffi", None)
    if ffi is not None:
        number = int(ffi.pango.pango_version())
        found["pango"] = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
        found["harfbuzz"] = _harfbuzz(ffi.harfbuzz)
    return found


def _harfbuzz(library: Any) -> str:
    """Its version, which it tells by comparison alone."""
    parts = [0, 0, 0]
    for place in range(3):
        while parts[place] < 999:
            more = [*parts[:place], parts[place] + 1, *([0] * (2 - place))]
            if not library.hb_version_atleast(*more):
                break
            parts[place] += 1
    return ".".join(map(str, parts))
