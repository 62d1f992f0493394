"""The files of a campaign: HTML, PDF of the same, JSON. The same runs give the same bytes, but for fonts in a PDF."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from validation.campaign.model import Campaign
from validation.campaign.render import as_html
from validation.files import replace
from validation.load import ConfigError
from validation.report.formats import Written
from validation.report.pdf import PdfUnavailable, pdf_bytes

FILES = {"html": "campaign.html", "pdf": "campaign.pdf", "json": "campaign.json"}
"""Name of a format, as `--format` takes it -> name of its file."""

_MAKERS: dict[str, Callable[[Campaign], bytes]] = {
    "html": lambda campaign: as_html(campaign).encode(),
    "pdf": lambda campaign: pdf_bytes(as_html(campaign)),
    "json": lambda campaign: (campaign.model_dump_json(indent=2, by_alias=True) + "\n").encode(),
}


def write_formats(campaign: Campaign, formats: Iterable[str], folder: Path) -> Written:
    """Write the asked formats of FILES into `folder`, which is made. ConfigError where the disk refuses."""
    wanted, written = set(formats), Written()
    made: dict[str, bytes] = {}
    for name in FILES:
        if name in wanted:
            try:
                made[name] = _MAKERS[name](campaign)
            except PdfUnavailable as fault:
                written.left_out[name] = str(fault)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise ConfigError(f"{folder}: cannot be written: {fault.strerror or fault}; give another place") from None
    for name, content in made.items():
        written.paths[name] = replace(folder / FILES[name], content)
    return written
