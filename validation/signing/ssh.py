"""The only place that runs ssh-keygen: what a key is, signing a file, checking a signature.

OpenSSH 8.2 or newer is wanted; checking against allowed signers at a given time needs 8.9.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from validation.base.temporary import room
from validation.model.load import ConfigError

_FINGERPRINT = re.compile(r"^\d+ (SHA256:\S+) .*\((\S+)\)$", re.DOTALL)
_GOOD = re.compile(r'^Good "[^"]*" signature (?:for .* )?with (\S+) key (SHA256:\S+)$', re.MULTILINE | re.DOTALL)
_FOREIGN = {
    b"PuTTY-User-Key-File": "a PuTTY key; convert it with: puttygen KEY -O private-openssh -o NEWKEY",
    b"-----BEGIN CERTIFICATE-----": "an X.509 certificate; a signature needs an OpenSSH key (ssh-keygen -t ed25519)",
    b"-----BEGIN PGP": "an OpenPGP key; a signature needs an OpenSSH key (ssh-keygen -t ed25519)",
    b"-----BEGIN SSH SIGNATURE-----": "a signature, not a key",
    b"---- BEGIN SSH2": "a key in RFC 4716 form; convert it with: ssh-keygen -i -f KEY > NEWKEY.pub",
}
_CERTIFICATE = re.compile(rb"^\S+-cert-v\d+@openssh\.com ")
_MAX_KEY_BYTES = 1 << 16


@dataclass(frozen=True)
class Key:
    """A key to sign with. `fingerprint` is `SHA256:...`, `kind` what ssh-keygen calls its type (ED25519, RSA, ...)."""

    path: Path
    fingerprint: str
    kind: str

    @property
    def on_token(self) -> bool:
        """True where a security key wants to be touched."""
        return self.kind.endswith("-SK")


@dataclass(frozen=True)
class Checked:
    """What ssh-keygen says of a signature. `principal` is who vouches for the key; None where nobody was asked."""

    good: bool
    fingerprint: str | None
    kind: str | None
    principal: str | None
    why: str


def _run(arguments: Sequence[str], given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    # Prompts for a passphrase go to the terminal; without one ssh-keygen must fail, not wait.
    stdin = None if sys.stdin is not None and sys.stdin.isatty() else subprocess.DEVNULL
    options: dict[str, Any] = {"stdin": stdin} if given is None else {"input": given}
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    command = ["ssh-keygen", *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=False, env=environment, **options)
    except FileNotFoundError:
        raise ConfigError("ssh-keygen is not installed; install OpenSSH's client (openssh-client)") from None


def _said(ran: subprocess.CompletedProcess[bytes]) -> str:
    text = (ran.stderr + b"\n" + ran.stdout).decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join(lines[-2:]) if lines else f"ssh-keygen ended with {ran.returncode}"


def read_key(path: Path) -> Key:
    """What the key in a file is (private, or public with its private half in ssh-agent); ConfigError where unusable."""
    try:
        with path.open("rb") as file:
            head = file.read(_MAX_KEY_BYTES)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such key; make one with: ssh-keygen -t ed25519 -f {path}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a directory; name the key file in it") from None
    except OSError as fault:
        raise ConfigError(f"{path}: the key cannot be read: {fault.strerror or fault}") from None
    for mark, words in _FOREIGN.items():
        if head.lstrip().startswith(mark):
            raise ConfigError(f"{path}: is {words}")
    if _CERTIFICATE.match(head):
        raise ConfigError(f"{path}: is an SSH certificate; name the key that it belongs to")
    ran = _run(["-l", "-E", "sha256", "-f", str(path)])
    match = _FINGERPRINT.match(ran.stdout.decode(errors="replace").strip())
    if ran.returncode != 0 or match is None:
        raise ConfigError(f"{path}: not an OpenSSH key; make one with: ssh-keygen -t ed25519 -f NEWKEY")
    return Key(path, match.group(1), match.group(2))


def sign(key: Key, namespace: str, content: bytes) -> bytes:
    """The signature over `content`, in OpenSSH's armour. May ask for a passphrase on the terminal."""
    with room("elastic-ai-sign") as folder:
        path = Path(folder) / "statement"
        path.write_bytes(content)
        ran = _run(["-q", "-Y", "sign", "-f", str(key.path), "-n", namespace, str(path)])
        signature = path.with_name("statement.sig")
        if ran.returncode != 0 or not signature.is_file():
            raise ConfigError(f"{key.path}: {_why_not(ran)}")
        return signature.read_bytes()


def _why_not(ran: subprocess.CompletedProcess[bytes]) -> str:
    low = ran.stderr.decode(errors="replace").lower()
    if "incorrect passphrase" in low:
        return "wrong passphrase, or no terminal to ask for it; add the key to ssh-agent (ssh-add KEY) and try again"
    if "are too open" in low or "bad permissions" in low:
        return "others may read this private key, so ssh-keygen refuses it; run: chmod 600 KEY"
    if "no such file" in low or "no private key" in low:
        return "its private half is neither beside it nor in ssh-agent; run: ssh-add KEY"
    if "agent refused" in low:
        return "ssh-agent refused to sign with it"
    return f"cannot sign with this key: {_said(ran)}"


def _signed_with(ran: subprocess.CompletedProcess[bytes]) -> tuple[str | None, str | None]:
    match = _GOOD.search(ran.stdout.decode(errors="replace").strip())
    return (match.group(2), match.group(1)) if ran.returncode == 0 and match else (None, None)


def check(content: bytes, signature: Path, namespace: str) -> Checked:
    """Whether the signature fits the content; says nothing about whose key it is."""
    ran = _run(["-Y", "check-novalidate", "-n", namespace, "-s", str(signature)], content)
    fingerprint, kind = _signed_with(ran)
    if fingerprint is None:
        return Checked(False, None, None, None, f"the signature does not match: {_said(ran)}")
    return Checked(True, fingerprint, kind, None, "intact; whose key it is was not checked")


def check_signer(content: bytes, signature: Path, namespace: str, allowed: Path, time: str) -> Checked:
    """As `check`, and the key must be one that the file of allowed signers vouches for.

    `time` is when the statement says that it was signed (YYYYMMDDHHMMSS, UTC): keys are judged as of that moment, so
    that a signature outlives its key's last day.
    """
    plain = check(content, signature, namespace)
    if not plain.good:
        return plain
    when = f"-Overify-time={time}"
    found = _run(["-Y", "find-principals", when, "-f", str(allowed), "-s", str(signature)], b"")
    names = [name for name in found.stdout.decode(errors="replace").splitlines() if name.strip()]
    unknown = f"intact, but {allowed} does not vouch for this key"
    if found.returncode != 0 or not names:
        return Checked(False, plain.fingerprint, plain.kind, None, unknown)
    last = ""
    for name in names:
        ran = _run(
            ["-Y", "verify", when, "-f", str(allowed), "-I", name, "-n", namespace, "-s", str(signature)], content
        )
        fingerprint, kind = _signed_with(ran)
        if fingerprint is not None:
            words = f"good; {allowed.name} vouches for the key as {name}"
            if not _holds_today(name, namespace, signature, allowed, content):
                words += " at the time that the signer's clock gave; it is not valid today"
            return Checked(True, fingerprint, kind, name, words)
        last = _said(ran)
    return Checked(False, plain.fingerprint, plain.kind, None, f"{unknown} here: {last}")


def _holds_today(name: str, namespace: str, signature: Path, allowed: Path, content: bytes) -> bool:
    """Whether the key would be accepted for a signature that was made now."""
    ran = _run(["-Y", "verify", "-f", str(allowed), "-I", name, "-n", namespace, "-s", str(signature)], content)
    return ran.returncode == 0


def whole(signature: bytes) -> bool:
    """True where a file of a signature is, byte for byte, what ssh-keygen writes; it reads more than that."""
    begin, end = b"-----BEGIN SSH SIGNATURE-----\n", b"-----END SSH SIGNATURE-----\n"
    try:
        text = base64.b64encode(base64.b64decode(signature.removeprefix(begin).removesuffix(end)))
    except ValueError:
        return False
    return signature == begin + b"".join(text[i : i + 70] + b"\n" for i in range(0, len(text), 70)) + end
