"""The certificate of a signature: one page that says who signed what, what was delivered, and how to check it.

It is made before the signature of what is known then: the run, the statement of its signer, and those of the signers
before. The statement holds its hash, so that the signature covers it; whoever verifies makes it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from validation.model import SignOff
from validation.report.criteria import tally
from validation.report.delivered import Delivered, delivered
from validation.report.documents import RunDocuments
from validation.report.pages import environment
from validation.report.pdf import pdf_bytes
from validation.report.pdf_record import record_of
from validation.report.punch_line import punch_line
from validation.report.render import css_string
from validation.report.serial_lines import serial_line
from validation.report.summary import verdict_of
from validation.report.words import front_words
from validation.signing.statement import WORDS, Statement, certificate_names, file_name

TITLES: dict[SignOff, str] = {
    "ACCEPTED": "CERTIFICATE OF ACCEPTANCE",
    "REJECTED": "CERTIFICATE OF REJECTION",
    "INCOMPLETE": "CERTIFICATE OF AN INCOMPLETE RUN",
    "REHEARSAL": "CERTIFICATE OF REHEARSAL",
    "INSPECTION": "CERTIFICATE OF INSPECTION",
    "CONSTRUCTED EXAMPLE": "CONSTRUCTED EXAMPLE OF A CERTIFICATE",
}
_SAID: dict[str, str] = {
    "pass": "passed",
    "fail": "failed",
    "not-measured": "not measured",
    "waived": "waived",
    "not-applicable": "not applicable",
}
_MACHINES, _SIGNERS, _HEADLINE, _MACHINE, _NAMES, _LINE = 3, 3, 180, 132, 96, 100
"""How much a page has room for: kinds of machines, signers, characters. `_NAMES`: of all signers."""


@dataclass(frozen=True)
class Certificate:
    """A certificate and the record of what it was made with, as they stand in a run: (name, content) of both."""

    pdf: tuple[str, bytes]
    record: tuple[str, bytes]


def certificate(documents: RunDocuments, statements: Sequence[Statement]) -> Certificate:
    """That of the last of `statements`, which are those of a run in their order.

    Unavailable where this machine cannot make a PDF.
    """
    pdf = pdf_bytes(certificate_html(documents, statements))
    record = record_of(pdf)
    assert record is not None  # it was just laid out here
    last = statements[-1]
    pdf_name, record_name = certificate_names(file_name(len(statements), last.name))
    return Certificate((pdf_name, pdf), (record_name, record.text()))


def certificate_html(documents: RunDocuments, statements: Sequence[Statement]) -> str:
    """Its page, for paper."""
    template = environment("validation.signing", css_string=css_string).get_template("certificate.html")
    return template.render(_view(documents, statements))


def _view(documents: RunDocuments, statements: Sequence[Statement]) -> dict[str, Any]:
    verdict, last = verdict_of(documents), statements[-1]
    counts, customer = tally(verdict.criteria), documents.customer
    machines = delivered(documents, front_words("en"))
    files = [file_name(number, one.name) for number, one in enumerate(statements, 1)]
    each = _NAMES // min(len(statements), _SIGNERS)
    signers = [replace(one, name=_short(one.name, each), company=_short(one.company, each)) for one in statements]
    return dict(
        title=TITLES[last.sign_off],
        tone=last.sign_off.lower().replace(" ", "-"),
        sign_off=last.sign_off,
        words=WORDS[last.sign_off],
        headline=_short(last.headline, _HEADLINE),
        site=_short(f"{customer.site} ({last.site})" if customer.site else last.site, _LINE),
        unit=_short(documents.info.unit or "", _LINE),
        customer=_short(customer.customer or "", _LINE // 2),
        project=_short(customer.project or "", _LINE // 2),
        run=_short(last.run, _LINE),
        measured=f"{documents.info.created[:10]}, {verdict.measured} of {verdict.planned} planned measurements"
        f"{_holds(last)}",
        fabric=_short(f"{documents.fabric.title} ({last.fabric})", _LINE),
        profile=_short(last.profile, _LINE),
        criteria=", ".join(f"{count} {_SAID[name]}" for name, count in counts.items() if count),
        total=len(verdict.criteria),
        punch=punch_line(verdict, _LINE),
        rules=f"{_short(documents.rules.words, _LINE)} (sha256 {documents.rules.sha256})",
        toolkit=last.toolkit,
        machines=[(_short(_machines(one), _MACHINE), _short(one.serials, _LINE)) for one in machines[:_MACHINES]],
        serials=serial_line(documents.parts, front_words("en")),
        machines_more=max(0, len(machines) - _MACHINES),
        signers=list(enumerate(signers, 1))[-_SIGNERS:],
        signers_more=max(0, len(signers) - _SIGNERS),
        manifest_sha256=last.manifest_sha256,
        namespace=last.namespace,
        statement=files[-1],
        later=len(statements) > 1,
    )


def _holds(last: Statement) -> str:
    if not last.last_day:
        return ""
    return f"; holds until {last.last_day}, while firmware, driver and parts stay"


def _machines(one: Delivered) -> str:
    """A line of page one of the report, without the marks of its columns."""
    parts = ", ".join(part for part in (one.model, one.gpus, one.adapter) if part)
    said = " (declared, not found out)" if one.declared else ""
    return f"{one.what}{f': {parts}' if parts else ''}{said}: {one.nodes}"


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
