"""What vouches for a mirror: the SHA-256 of every file, and the signature of OpenSSH over a statement on the list."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from toolkit.deploy.record import utc_now
from toolkit.errors import UsageFault
from toolkit.mirror import medium
from toolkit.mirror.documents import Plan
from toolkit.mirror.room import sha256
from validation.base import bounded
from validation.base.files import replace
from validation.signing import ssh

MANIFEST, STATEMENT, SIGNATURE = "MANIFEST.sha256", "mirror.txt", "mirror.txt.sig"
NAMESPACE = "elastic-ai-mirror"
WORDS = "MIRROR. I sign that the files listed in MANIFEST.sha256 are those that were downloaded for this site."
_MOST_BYTES = 1 << 20
"""Of a statement, which has a dozen lines."""
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")


@dataclass(frozen=True)
class Signed:
    """The signature of a mirror, checked. said: of the statement; `key` is the one that signed it, whatever the
    statement calls it. manifest: SHA-256 by file."""

    good: bool
    words: str
    said: dict[str, str]
    manifest: dict[str, str]


def files(folder: Path) -> list[str]:
    """Every file of a mirror that its manifest names, in order. A link is none."""
    return sorted(name for name, mode in medium.entries(folder) if stat.S_ISREG(mode) and _listed(name))


def others(folder: Path) -> list[str]:
    """Links, pipes and devices, which no mirror has."""
    return sorted(name for name, mode in medium.entries(folder) if not stat.S_ISREG(mode) and _listed(name))


def _listed(name: str) -> bool:
    return name not in (MANIFEST, STATEMENT, SIGNATURE) and not name.startswith(f"{medium.PARTIAL}/")


def unsign(folder: Path) -> None:
    """Take the signature away, before anything changes: a mirror that is half made is trusted by nobody."""
    (folder / SIGNATURE).unlink(missing_ok=True)


def write(folder: Path, plan: Plan, fingerprint: str, key: ssh.Key) -> None:
    """List, state and sign it. Packages have the hashes by which they came."""
    known = {f"{r.folder}/{p.file}": p.sha256 for r in plan.repositories for p in r.packages}
    lines = [f"{known.get(name) or sha256(folder / name)}  {name}\n" for name in files(folder)]
    replace(folder / MANIFEST, "".join(lines).encode())
    fields = {
        "site": plan.site, "systems": ", ".join(plan.systems), "planned": plan.made, "signed": utc_now(),
        "toolkit": plan.release, "packages-key": fingerprint, "key": f"{key.fingerprint} ({key.kind})",
    }  # fmt: skip
    text = "".join(f"# {line}\n" for line in (WORDS, *(f"{name}: {value}" for name, value in fields.items())))
    statement = f"{text}{sha256(folder / MANIFEST)}  {MANIFEST}\n".encode()
    signature = ssh.sign(key, NAMESPACE, statement)
    replace(folder / STATEMENT, statement)
    replace(folder / SIGNATURE, signature)


def read(folder: Path, signers: Path | None) -> Signed:
    """Who signed a mirror, and what. UsageFault where it is none, or was not finished."""
    for name in (MANIFEST, STATEMENT, SIGNATURE):
        if not (folder / name).is_file():
            raise UsageFault(
                f"{folder / name}: is missing: this is no mirror, or one that was not finished; run toolkit mirror "
                f"build {folder} again"
            )
    text = _statement(folder / STATEMENT)
    lines = text.decode("utf-8", "replace").splitlines()
    said = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# ") and ": " in line)
    when = re.sub(r"\D", "", said.get("signed", ""))[:14]
    done = _checked(text, folder / SIGNATURE, signers, when)
    stated = next((line.split("  ")[0] for line in lines if line.endswith(f"  {MANIFEST}")), "")
    if done.good:
        said["key"] = f"{done.fingerprint} ({done.kind})"
    if done.good and stated != sha256(folder / MANIFEST):
        return Signed(False, f"{MANIFEST} is not the one that was signed", said, {})
    listed = (folder / MANIFEST).read_text(encoding="utf-8", errors="replace").splitlines()
    manifest = {match[2]: match[1] for line in listed if (match := _LINE.fullmatch(line)) is not None}
    return Signed(done.good, done.why, said, manifest)


def _statement(path: Path) -> bytes:
    try:
        return bounded.read_file(path, _MOST_BYTES)
    except bounded.TooMuch:
        raise UsageFault(
            f"{path}: has more than {bounded.size(_MOST_BYTES)}, and is no statement of a mirror"
        ) from None


def differing(folder: Path, signed: Signed, names: Iterable[str]) -> list[str]:
    """Which of these files are not the signed ones."""
    return [name for name in names if _sum(folder / name) != signed.manifest.get(name)]


def _sum(path: Path) -> str:
    try:
        return sha256(path) if path.is_file() and not path.is_symlink() else ""
    except OSError:
        return ""


def _checked(text: bytes, signature: Path, signers: Path | None, when: str) -> ssh.Checked:
    if signers is None:
        return ssh.check(text, signature, NAMESPACE)
    return ssh.check_signer(text, signature, NAMESPACE, signers, when)
