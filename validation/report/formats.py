"""All formats of a report, made from the same documents: HTML, PDF, JSON, JUnit, OpenMetrics.

The same run directory gives the same bytes in each of them: no clock, no machine name. For PDF that holds as long as
the PDF library and the fonts are the same, for their version stands in the file and the fonts are embedded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from validation.base.files import replace
from validation.base.visible import clean, visible_lines
from validation.model.load import ConfigError
from validation.report.documents import RunDocuments, read_run
from validation.report.json_report import report_json
from validation.report.junit import junit_xml
from validation.report.laid_out import layout_unless
from validation.report.pdf import pdf_bytes
from validation.report.render import fill, view
from validation.report.unavailable import Unavailable
from validation.run.read import Run, read

FILES: dict[str, str] = {
    "html": "report.html",
    "pdf": "report.pdf",
    "json": "report.json",
    "junit": "junit.xml",
    "prom": "metrics.prom",
}
"""Name of a format, as `--format` takes it -> name of its file in a run directory."""

Views = Mapping[str, Any]

Layout = Callable[[str], bytes]


def _open_metrics(documents: RunDocuments) -> bytes:
    try:
        from validation.report.openmetrics import open_metrics  # only here: the other formats do without its library
    except ImportError:
        raise Unavailable(
            "prom left out: the library prometheus_client is not installed; pip install prometheus-client"
        ) from None
    return open_metrics(documents)


_MAKERS: dict[str, Callable[[RunDocuments, Views, Layout], bytes]] = {
    "html": lambda documents, views, layout: fill(views).encode(),
    "pdf": lambda documents, views, layout: layout(fill(views, printed=True)),
    "json": lambda documents, views, layout: report_json(documents),
    "junit": lambda documents, views, layout: junit_xml(documents),
    "prom": lambda documents, views, layout: _open_metrics(documents),
}
_FROM_VIEWS = ("html", "pdf")


@dataclass
class Written:
    """`paths`: format -> the file that was written. `left_out`: format -> one line why it could not be made."""

    paths: dict[str, Path] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def make(
    documents: RunDocuments, formats: Iterable[str] = tuple(FILES), layout: Layout = pdf_bytes
) -> tuple[dict[str, bytes], dict[str, str]]:
    """The asked formats in memory, and for each that cannot be made here (PDF without its library) one line why.

    `formats` are keys of FILES, `layout` makes the PDF of the HTML for paper. Reads no file of the run and writes none.
    """
    names = [name for name in FILES if name in set(formats)]
    views = view(documents) if any(name in _FROM_VIEWS for name in names) else {}
    made: dict[str, bytes] = {}
    left_out: dict[str, str] = {}
    for name in names:
        try:
            made[name] = _MAKERS[name](documents, views, layout)
            if name != "pdf":  # which is of the text of the HTML
                made[name] = _seen(made[name])
        except Unavailable as fault:
            left_out[name] = str(fault)
    return made, left_out


def _seen(content: bytes) -> bytes:
    """A text without anything that could not be seen in it; JSON and XML stay what they are."""
    return content if clean(content) else visible_lines(content.decode()).encode()


def write_formats(
    run: Path | Run, formats: Iterable[str] = tuple(FILES), out: Path | None = None, trusting: bool = False
) -> Written:
    """Write the asked formats of a run into `out` (default: the run directory), each in one step.

    `trusting` leaves a PDF that stands there as it is, where this user's toolkit made exactly it of exactly this text.
    Nothing is written when one of them fails for another reason than a missing library. Raises ConfigError with one
    line for a damaged run directory or a place that cannot be written.
    """
    run = read(run)
    folder = run.folder if out is None else out
    made, left_out = make(read_run(run), formats, layout_unless(_standing(folder) if trusting else None))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise ConfigError(f"{folder}: cannot be made: {e.strerror or e}; give another place") from None
    written = Written(left_out=left_out)
    for name, content in made.items():
        written.paths[name] = replace(folder / FILES[name], content)
    return written


def _standing(folder: Path) -> bytes | None:
    path = folder / FILES["pdf"]
    try:
        return path.read_bytes() if path.is_file() and not path.is_symlink() else None
    except OSError:
        return None
