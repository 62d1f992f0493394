"""`report.yml`: the customer's words for the report, and what they bring with them (logo, a partner's templates).

The run directory holds a copy of all of it, so that the same run gives the same report on any machine. A logo is
embedded, so it is looked at first: it may neither run anything nor ask for anything from outside.
"""

from __future__ import annotations

import base64
import re
import shutil
import unicodedata
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree as Xml

from jinja2 import Environment, TemplateSyntaxError
from pydantic import AfterValidator, Field

from validation.base.visible import hidden
from validation.base.yaml_text import plain
from validation.model import Model
from validation.model.load import ConfigError, line_of, load_yaml, read_bytes
from validation.report.words import LANGUAGES, Language

NAME = "report.yml"
FILES = "report-files"
"""Folder of the run directory that holds copies of the logo and the templates."""

LOGO_MAX_BYTES = 256 * 1024
_LOGO_MAX_PIXELS = 4000
_TEMPLATES_MAX_BYTES = 256 * 1024
_PNG = b"\x89PNG\r\n\x1a\n"
_UNSAFE_ELEMENTS = {"script", "foreignobject", "iframe", "object", "embed", "audio", "video", "image", "use", "style"}

#: What a partner may put in place of ours. None of them states a verdict.
TEMPLATES = ("_head.html", "_intro.html", "_closing.html")

#: What a verdict or a check says: no words of a site's own stand for it.
_VERDICT = re.compile(r"\b(accepted|rejected|incomplete|rehearsal|verified|intact|passed|failed)\b", re.IGNORECASE)


def _no_verdict(text: str) -> str:
    if _VERDICT.search(unicodedata.normalize("NFKC", text)) or hidden(text):
        raise ValueError("says what a verdict says, or has characters that cannot be seen; write it otherwise")
    return text


Words = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[^\x00-\x1f\x7f]*$"), AfterValidator(_no_verdict)]


class Customer(Model):
    """The keys of report.yml, all optional. Paths are relative to the file.

    `language` is that of page one; `templates` is a folder with any of `TEMPLATES`.
    """

    customer: Words | None = None
    site: Words | None = None
    project: Words | None = None
    contact: Words | None = None
    logo: str | None = Field(default=None, min_length=1)
    language: Language = "en"
    templates: str | None = Field(default=None, min_length=1)


def load_customer(path: Path) -> Customer:
    """Read and check a report.yml with everything that it names; ConfigError with file and line."""
    customer = load_yaml(path, Customer)
    if customer.logo is not None:
        logo_uri(path, customer)
    template_texts(path, customer)
    return customer


def customer_of(run_dir: Path) -> Customer:
    """The customer's words in a run directory; the defaults where there are none."""
    path = run_dir / NAME
    if not path.exists():
        return Customer()
    customer = load_yaml(path, Customer)
    for key in ("logo", "templates"):  # before anything of another folder is read
        name = getattr(customer, key)
        if name is not None and (name.startswith("/") or ".." in name.split("/")):
            raise ConfigError(f"{path}:{line_of(path, key)}: {key}: leads out of the run; name a file in it")
    return load_customer(path)


def logo_uri(path: Path, customer: Customer) -> str | None:
    """The logo of the report.yml at `path` as a data: URI; None where there is none."""
    if customer.logo is None:
        return None
    file, data = _read(path, "logo", customer.logo)
    fault = _logo_fault(data)
    if fault:
        raise ConfigError(f"{path}:{line_of(path, 'logo')}: logo: {file.name}: {fault}")
    kind = "image/png" if data.startswith(_PNG) else "image/svg+xml"
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


def template_texts(path: Path, customer: Customer) -> dict[str, str]:
    """Name -> text of the partner's templates; ConfigError for a file that is none of `TEMPLATES`."""
    if customer.templates is None:
        return {}
    where = f"{path}:{line_of(path, 'templates')}: templates: {customer.templates}"
    folder = path.parent / customer.templates
    if not folder.is_dir():
        raise ConfigError(f"{where}: no such folder; give one relative to {path.name}")
    texts = {}
    for file in sorted(p for p in folder.iterdir() if not p.name.startswith(".")):
        if file.name not in TEMPLATES:
            raise ConfigError(f"{where}: {file.name} cannot be overridden; there are: {', '.join(TEMPLATES)}")
        try:
            text = read_bytes(file, _TEMPLATES_MAX_BYTES + 1).decode() if not _long(file) else ""
        except (OSError, UnicodeDecodeError) as fault:
            raise ConfigError(f"{where}: {file.name}: {getattr(fault, 'strerror', None) or 'not UTF-8 text'}") from None
        if _long(file):
            raise ConfigError(f"{where}: {file.name}: larger than {_TEMPLATES_MAX_BYTES // 1024} KiB; shorten it")
        try:
            Environment().parse(text)  # noqa: S701 - nothing is rendered here
        except TemplateSyntaxError as fault:
            raise ConfigError(f"{file}:{fault.lineno}: {fault.message}; correct the template") from None
        except RecursionError:
            raise ConfigError(f"{file}:1: nested too deeply; correct the template") from None
        texts[file.name] = text
    return texts


def _long(file: Path) -> bool:
    return file.stat().st_size > _TEMPLATES_MAX_BYTES


def adopt(path: Path, run_dir: Path) -> None:
    """Copy a report.yml with its logo and templates into the run directory, in place of those that are there.

    Raises ConfigError (one line, with file and line) before anything is written.
    """
    customer = load_customer(path)
    if path.resolve() == (run_dir / NAME).resolve():
        return
    texts = template_texts(path, customer)
    changes: dict[str, str] = {}
    shutil.rmtree(run_dir / FILES, ignore_errors=True)
    try:
        if customer.logo is not None:
            _, data = _read(path, "logo", customer.logo)
            changes["logo"] = f"{FILES}/logo{'.png' if data.startswith(_PNG) else '.svg'}"
            (run_dir / FILES).mkdir(exist_ok=True)
            (run_dir / changes["logo"]).write_bytes(data)
        if customer.templates is not None:
            changes["templates"] = f"{FILES}/templates"
            (run_dir / changes["templates"]).mkdir(parents=True, exist_ok=True)
            for name, text in texts.items():
                (run_dir / changes["templates"] / name).write_text(text, encoding="utf-8")
        kept = customer.model_copy(update=changes).model_dump(exclude_none=True)
        (run_dir / NAME).write_text(plain(kept), encoding="utf-8")
    except OSError as fault:
        raise ConfigError(f"{run_dir}: cannot be written: {fault.strerror or fault}; make room") from None


def _read(path: Path, key: str, name: str) -> tuple[Path, bytes]:
    file = path.parent / name
    where = f"{path}:{line_of(path, key)}: {key}: {name if name.isprintable() else repr(name)}"
    try:
        if file.stat().st_size > LOGO_MAX_BYTES:
            raise ConfigError(f"{where}: larger than {LOGO_MAX_BYTES // 1024} KiB; make it smaller")
        return file, file.read_bytes()
    except (OSError, ValueError) as fault:  # ValueError: a NUL in the name
        words = getattr(fault, "strerror", None) or str(fault)
        raise ConfigError(f"{where}: {words}; give a file relative to {path.name}") from None


def _logo_fault(data: bytes) -> str | None:
    """What keeps a file from being a logo; None where nothing does."""
    if data.startswith(_PNG):
        sides = [int.from_bytes(data[at : at + 4], "big") for at in (16, 20)]
        if data[12:16] != b"IHDR" or not all(0 < side <= _LOGO_MAX_PIXELS for side in sides):
            return f"not a PNG of at most {_LOGO_MAX_PIXELS} x {_LOGO_MAX_PIXELS} pixels; save it again"
        return None
    try:
        text = data.decode("utf-8")
        if "<!DOCTYPE" in text or "<!ENTITY" in text or "<?xml-stylesheet" in text:
            return "contains a DOCTYPE, an entity or a style sheet; save it as plain SVG"
        root = Xml.fromstring(text)  # noqa: S314 - no DOCTYPE, so no entities
    except (UnicodeDecodeError, Xml.ParseError):
        return "is neither PNG nor SVG; give one of these"
    if root.tag.rpartition("}")[2] != "svg":
        return "is neither PNG nor SVG; give one of these"
    if any(_VERDICT.search(between.join(root.itertext())) for between in ("", " ")):
        return "says what a verdict says; save it as plain SVG with outlines of the name alone"
    for element in root.iter():
        name = str(element.tag).rpartition("}")[2].lower()
        if name in _UNSAFE_ELEMENTS or name.startswith(("animate", "set")):
            return f"contains <{name}>, which is not allowed in a logo; save it as plain SVG with outlines"
        for key, value in element.attrib.items():
            bare = key.rpartition("}")[2].lower()
            outside = bare == "href" and not value.startswith("#")
            if bare.startswith("on") or outside or "url(" in value.replace("url(#", ""):
                return f"<{name}> has {bare}, which runs or fetches something; save it as plain SVG"
    return None


__all__ = ["FILES", "LANGUAGES", "NAME", "TEMPLATES", "Customer", "adopt", "customer_of", "load_customer", "logo_uri"]
