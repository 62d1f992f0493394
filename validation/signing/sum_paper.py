"""The paper of a sum: its data, its page, a statement with the hashes of both, and OpenSSH's signature."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from validation.base.files import replace
from validation.base.visible import hidden
from validation.model.load import ConfigError, load_json, read_bytes
from validation.model.times import CLOCK_S, moment
from validation.report.pages import environment
from validation.signing import ssh
from validation.signing.signatures import AHEAD, MAX_BYTES
from validation.signing.statement import MOST, utc_text
from validation.signing.sums import SumDoc

RUN = "run.json"  # a folder that has it is a run
DATA, PAGE, STATEMENT, SIGNATURE = "sum.json", "sum.html", "sum.txt", "sum.txt.sig"
NAMESPACE = {"ACCEPTED": "elastic-ai-sum", "REHEARSAL": "elastic-ai-sum-rehearsal"}
WORDS = {
    "ACCEPTED": "SUM. I sign that the runs listed in sum.json were each accepted and signed, and cover no more than "
    "they say.",
    "REHEARSAL": "SUM OF REHEARSALS. The runs listed in sum.json are rehearsals; this accepts nothing.",
}


@dataclass(frozen=True)
class SumChecked:
    """A sum's paper, checked. `faults`: one line each. `signer` and `why`: of the signature."""

    faults: tuple[str, ...]
    signer: str
    why: str
    document: SumDoc | None


def sum_page(document: SumDoc) -> str:
    """The page, in the style of the report."""
    return environment("validation.signing").get_template("sum.html").render(
        sum=document,
        words=WORDS[document.sign_off],
        rehearsal=document.sign_off == "REHEARSAL",
        constructed=False,
        namespace=NAMESPACE[document.sign_off],
    )  # fmt: skip


def write_sum(folder: Path, document: SumDoc, key: ssh.Key, name: str, company: str, signed: datetime) -> Path:
    """Write and sign it into a new folder; the statement's path. ConfigError where the folder is there or the disk
    refuses.
    """
    if os.path.lexists(folder):
        raise ConfigError(f"{folder}: is there already; name another folder with --out")
    data, page = "".join(document.written()).encode(), sum_page(document).encode()
    text = statement(document, data, page, name, company, utc_text(signed), f"{key.fingerprint} ({key.kind})").encode()
    signature = ssh.sign(key, NAMESPACE[document.sign_off], text)  # may fail: no folder is made before
    with new_folder(folder):
        for file, content in ((DATA, data), (PAGE, page), (STATEMENT, text), (SIGNATURE, signature)):
            replace(folder / file, content)
    return folder / STATEMENT


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Make it for what is written meanwhile; removed again where that does not end well.

    ConfigError where it is there, cannot be made, or is in a run, whose signature says what is in there.
    """
    run = next((one for one in folder.absolute().resolve().parents if (one / RUN).is_file()), None)
    if run is not None:
        raise ConfigError(f"{folder}: is in the run {run}, which has its own files; name a folder outside with --out")
    made = next((one for one in reversed(folder.parents) if not one.exists()), folder)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ConfigError(f"{folder}: is there already; name another folder with --out") from None
    except OSError as fault:
        raise ConfigError(f"{folder}: cannot be made: {fault.strerror or fault}; name another folder") from None
    try:
        yield
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def statement(document: SumDoc, data: bytes, page: bytes, name: str, company: str, time: str, key: str) -> str:
    """What is signed: a text to read, and input for sha256sum -c."""
    said = {"site": document.site, "fabric": document.fabric, "units": str(len(document.units)),
            "nodes": str(document.nodes), "name": name, "company": company, "time": time, "key": key,
            "valid-until": document.last_day}  # fmt: skip
    lines = [WORDS[document.sign_off], "", *(f"{label + ':':<13}{value}" for label, value in said.items())]
    lines += ["", "Hashes of the data and the page; check with: sha256sum -c"]
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {file}\n" for file, content in ((DATA, data), (PAGE, page)))
    return "".join(f"# {line}".rstrip() + "\n" for line in lines) + sums


def check_sum(folder: Path) -> SumChecked:
    """Hashes, words, page and signature of a sum. ConfigError where there is none to check."""
    for file in (DATA, PAGE, STATEMENT, SIGNATURE):
        if not (folder / file).is_file():
            raise ConfigError(f"{folder / file}: is missing; name the folder of a sum that was signed")
    data, page, text = (read_bytes(folder / file, MAX_BYTES * 16) for file in (DATA, PAGE, STATEMENT))
    try:
        document = load_json(folder / DATA, SumDoc)
    except ConfigError as fault:
        return SumChecked((str(fault),), "", "", None)
    faults = []
    if document.sign_off not in NAMESPACE:
        return SumChecked((f"{DATA}: is no sum of acceptances or rehearsals",), "", "", None)
    said = dict(re.findall(r"^# ([a-z-]+): +(\S.*)$", text.decode(errors="replace"), re.MULTILINE))
    keys = [said.get(label, "") for label in ("name", "company", "time", "key")]
    if text != statement(document, data, page, *keys).encode():
        faults.append(f"{STATEMENT}: is not of this data and page: something was changed since it was signed")
    if data != "".join(document.written()).encode():
        faults.append(f"{DATA}: is not as the toolkit writes it; it was edited")
    if any(hidden(word) or len(word) > MOST for word in keys[:2]):
        faults.append(f"{STATEMENT}: the signer's name or company is too long, or has characters that cannot be seen")
    faults += _time(keys[2], document)
    strays = sorted({path.name for path in folder.iterdir()} - {DATA, PAGE, STATEMENT, SIGNATURE})
    if strays:
        faults.append(f"{', '.join(strays[:8])}: not of this sum; nobody has signed what is in there")
    if page != sum_page(document).encode():
        faults.append(f"{PAGE}: is not the page of {DATA}; it was edited, or made by another release")
    signed = ssh.check(text, folder / SIGNATURE, NAMESPACE[document.sign_off])
    if not ssh.whole(read_bytes(folder / SIGNATURE, MAX_BYTES)):
        faults.append(f"{SIGNATURE}: has more in it than the signature")
    elif not signed.good:
        faults.append(f"{SIGNATURE}: {signed.why}")
    elif f"{signed.fingerprint} ({signed.kind})" != keys[3]:
        faults.append(f"{SIGNATURE}: was made with another key than the statement names")
    return SumChecked(tuple(faults), f"{keys[0]}, {keys[1]}, {keys[2]}, key {keys[3]}", signed.why, document)


def _time(said: str, document: SumDoc) -> Iterator[str]:
    """Where the time of a sum's statement cannot be that of its signature."""
    signed = moment(said)
    if signed is None:
        yield f"{STATEMENT}: its time is none: {said}"
        return
    before = [when for unit in document.units for one in unit.signers if (when := moment(one.time)) is not None]
    if before and signed < max(before) - timedelta(seconds=CLOCK_S):
        yield f"{STATEMENT}: says that it was signed at {said}, before its units were"
    if signed > datetime.now(timezone.utc) + AHEAD:
        yield f"{STATEMENT}: says that it was signed at {said}, which is in the future by the clock here"
