"""The statement that a person signs: a text to read, and at the same time input for `sha256sum -c`.

Its words and the namespace of its signature follow from the sign-off of the run, so that nobody can sign a rehearsal
as an acceptance.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from datetime import datetime, timezone

from validation.base.visible import hidden, visible
from validation.model import SignOff, VerdictDoc
from validation.model.base import NAMESPACES
from validation.model.load import ConfigError
from validation.signing import MANIFEST, SIGNATURES
from validation.signing.last_day import ENDS, day_of

WORDS: dict[SignOff, str] = {
    "ACCEPTED": "ACCEPTED. I sign this run as an acceptance of the system that it measured.",
    "REJECTED": "REJECTED. I sign this run as a rejection; it accepts nothing.",
    "INCOMPLETE": "INCOMPLETE. I sign this run as incomplete; it accepts nothing.",
    "REHEARSAL": "REHEARSAL. This is a rehearsal on virtual hardware; it accepts nothing.",
    "INSPECTION": "INSPECTION. This is one machine as it was found, by no inventory; it accepts nothing.",
    "CONSTRUCTED EXAMPLE": "CONSTRUCTED EXAMPLE. Its data were made up; no machine was measured; it accepts nothing.",
}
_KEYS = (
    "run",
    "site",
    "fabric",
    "sign-off",
    "outcome",
    "profile",
    "headline",
    "toolkit",
    "name",
    "company",
    "time",
    "key",
)
_CERTIFIED = "The certificate of this signature, and what it was made with:"
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_CERTIFICATE = re.compile(
    rf"^([0-9a-f]{{64}})  ({re.escape(SIGNATURES)}/[0-9]{{2,}}-[a-z0-9-]{{1,40}}-certificate\.(?:pdf|json))$",
    re.MULTILINE,
)
_WIDTH = 10
_LAST_DAY = "valid-until"
MOST = 200
"""Characters of a name, a company or a release, at most. Project default."""


@dataclass(frozen=True)
class Statement:
    """What somebody signs. `time` is UTC (2026-11-21T12:00:00Z) by the signer's clock, `key` its fingerprint.

    `allowed` names files that were kept although something in them looks like a secret. `rules`: whose rules the run
    was judged by, with their hash; earlier releases did not say it. `last_day`: until when it holds (2027-11-21), ""
    where an earlier release named none. `certificate`: (name, SHA-256) of the certificate
    of this signature and of what it was made with; empty where none could be made.
    """

    run: str
    site: str
    fabric: str
    sign_off: SignOff
    outcome: str
    profile: str
    headline: str
    toolkit: str
    name: str
    company: str
    time: str
    key: str
    manifest_sha256: str
    allowed: tuple[str, ...] = ()
    rules: str = ""
    certificate: tuple[tuple[str, str], ...] = ()
    last_day: str = ""

    @property
    def namespace(self) -> str:
        """The namespace of the signature."""
        return NAMESPACES[self.sign_off]

    @property
    def compact_time(self) -> str:
        """The time as ssh-keygen takes it: 20261121120000."""
        return re.sub(r"\D", "", self.time)

    def text(self) -> str:
        """The text that is signed."""
        values = [self.run, self.site, self.fabric, self.sign_off, self.outcome, self.profile, self.headline]
        values += [self.toolkit, self.name, self.company, self.time, self.key]
        lines = [WORDS[self.sign_off], ""]
        lines += [f"{key + ':':<{_WIDTH}} {value}" for key, value in zip(_KEYS, values, strict=True)]
        lines += [f"{'rules:':<{_WIDTH}} {self.rules}"] if self.rules else []
        lines += [f"{_LAST_DAY}: {self.last_day}", f"ended-by:  {ENDS}"] if self.last_day else []
        lines += [f"{'allowed:':<{_WIDTH}} {name}" for name in self.allowed]
        lines += ["", "The hash of the manifest, which holds the hash of every file; check with: sha256sum -c"]
        text = "".join(f"# {line}".rstrip() + "\n" for line in lines) + f"{self.manifest_sha256}  {MANIFEST}\n"
        if self.certificate:
            text += f"# {_CERTIFIED}\n" + "".join(f"{sha256}  {name}\n" for name, sha256 in self.certificate)
        return text


def profile_words(verdict: VerdictDoc) -> str:
    """The acceptance profile of a run, as a statement names it."""
    if verdict.profile is None:
        return "none: everything required is owed"
    return one_line(f"{verdict.profile.name}: {verdict.profile.title}")


def one_line(text: str) -> str:
    """Text of any origin as one printable line."""
    return " ".join("".join(c if unicodedata.category(c)[0] != "C" else " " for c in text).split())


def signer(given: str) -> tuple[str, str]:
    """Name and company out of "NAME, COMPANY"; ConfigError where one is missing."""
    name, _, company = given.partition(",")
    if one_line(given) != " ".join(given.split(" ")).strip():
        raise ConfigError(f"--as: '{visible(given)}' has characters that cannot be seen; write it without them")
    if not name.strip() or not company.strip():
        raise ConfigError(f'--as: {one_line(given)!r} is not of the form "NAME, COMPANY"')
    if len(given) > MOST or hidden(given):
        raise ConfigError(f"--as: has more than {MOST} characters, or some that cannot be seen; write it shorter")
    return one_line(name), one_line(company)


def file_name(number: int, name: str) -> str:
    """Of the statement of the signer called `name`, the `number`-th of a run."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:40] or "signer"
    return f"{number:02d}-{slug}.txt"


def certificate_names(statement: str) -> tuple[str, str]:
    """Of the certificate that belongs to the statement in the file `statement`, and of the record of its making."""
    begin = f"{SIGNATURES}/{statement.removesuffix('.txt')}-certificate"
    return f"{begin}.pdf", f"{begin}.json"


def read_statement(text: str, where: str) -> Statement:
    """The statement in a text; ConfigError where it is not word by word what a statement with these values says."""
    fault = ConfigError(f"{where}: is not a statement of this toolkit, or its text was changed")
    found: dict[str, str] = {}
    allowed, rules, last_day = [], "", ""
    for line in text.split("\n"):
        match = re.fullmatch(r"# ([a-z-]+): +(\S.*)", line)
        if match and match.group(1) == "allowed":
            allowed.append(match.group(2))
        elif match and match.group(1) == "rules":
            rules = match.group(2)
        elif match and match.group(1) == _LAST_DAY:
            last_day = match.group(2)
        elif match and match.group(1) in _KEYS:
            if match.group(1) in found:
                raise fault
            found[match.group(1)] = match.group(2)
    sum_ = re.search(rf"^([0-9a-f]{{64}})  {re.escape(MANIFEST)}$", text, re.MULTILINE)
    if set(found) != set(_KEYS) or sum_ is None or found["sign-off"] not in NAMESPACES:
        raise fault
    try:
        datetime.strptime(found["time"], _TIME)
    except ValueError:
        raise fault from None
    if last_day and day_of(last_day) is None:
        raise fault
    if any(len(found[key]) > MOST for key in ("toolkit", "name", "company", "key")):
        raise fault
    if any(one_line(value) != value or hidden(value) for value in (*found.values(), *allowed, rules, last_day)):
        raise fault
    statement = Statement(
        **{key.replace("-", "_"): found[key] for key in _KEYS},  # type: ignore[arg-type]
        manifest_sha256=sum_.group(1),
        allowed=tuple(allowed),
        rules=rules,
        certificate=tuple((name, sha256) for sha256, name in _CERTIFICATE.findall(text)),
        last_day=last_day,
    )
    if statement.text() != text:
        raise fault
    return statement


def utc_text(moment: datetime) -> str:
    """A moment (with time zone) as a statement writes it."""
    return moment.astimezone(timezone.utc).strftime(_TIME)
