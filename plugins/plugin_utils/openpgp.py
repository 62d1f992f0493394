"""OpenPGP public keys on the controller: gpg reads and checks them in a keyring of its own before a node gets any."""

from __future__ import annotations

import contextlib
import datetime
import functools
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from ansible.errors import AnsibleFilterError

from ansible_collections.elastic_ai.toolkit.plugins.module_utils.plain import PLAIN

GPG = ("gpg", "--batch", "--no-options", "--no-autostart", "--disable-dirmngr", "--no-auto-check-trustdb")
TIMEOUT_S = 60
#: Signatures by which a key speaks for itself: on a user ID (10 to 13) and on the key alone (1f).
SELF_CLASSES = ("10", "11", "12", "13", "1f")
#: Hash algorithms, RFC 9580 section 9.5.
HASHES = {"1": "md5", "2": "sha1", "3": "ripemd160", "8": "sha256", "9": "sha384", "10": "sha512", "11": "sha224"}


class Key(NamedTuple):
    """A primary key as gpg describes it. `hashes` are those of its self-signatures that gpg verified."""

    fingerprint: str
    created: str
    expires: str
    hashes: tuple[str, ...]


def _gpg(home: str, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [*GPG, "--homedir", home, *arguments]
    try:
        return subprocess.run(
            command, input=stdin, capture_output=True, check=False, timeout=TIMEOUT_S, env={**os.environ, **PLAIN}
        )
    except FileNotFoundError:
        raise AnsibleFilterError("gpg is not installed on this machine; install GnuPG") from None
    except subprocess.TimeoutExpired:
        raise AnsibleFilterError(f"gpg did not answer within {TIMEOUT_S} s") from None


@contextlib.contextmanager
def _home() -> Iterator[str]:
    """A folder for gpg; what it makes below /run/user for sockets goes with it."""
    with tempfile.TemporaryDirectory(prefix="elastic-ai-keys-") as home:
        try:
            yield home
        finally:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    ["gpgconf", "--homedir", home, "--remove-socketdir"], stdin=subprocess.DEVNULL,
                    capture_output=True, check=False, timeout=TIMEOUT_S, env={**os.environ, **PLAIN},
                )  # fmt: skip


@contextlib.contextmanager
def _keyring(data: bytes) -> Iterator[str]:
    """A keyring with the keys of a file and no other; AnsibleFilterError where gpg refuses any part of the file."""
    with _home() as home:
        done = _gpg(home, "--status-fd", "1", "--import", stdin=data)
        status = done.stdout.decode(errors="replace")
        counts = re.search(r"^\[GNUPG:\] IMPORT_RES (.*)$", status, re.MULTILINE)
        read = [int(count) for count in counts[1].split()] if counts else [0] * 14
        if "[GNUPG:] NODATA" in status or (done.returncode == 0 and not read[0]):
            raise AnsibleFilterError("this is not an OpenPGP public key")
        if done.returncode or any(read[9:12]):  # 9 to 11: secret keys, which do not belong in such a file
            lines = [line.removeprefix("gpg: ") for line in done.stderr.decode(errors="replace").splitlines()]
            why = next((line for line in lines if not line.startswith("keybox ")), "it holds a secret key")
            raise AnsibleFilterError(f"gpg refuses this OpenPGP key: {why}")
        yield home


def _bytes(text: str | bytes) -> bytes:
    # A lookup hands binary data over as text with surrogates in place of what is not UTF-8.
    return text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogateescape")


def _time(field: str) -> str:
    """A time of gpg as ISO 8601, UTC; '' for none."""
    if not field:
        return ""
    if not field.isdecimal():  # gpg's form for times after 2106
        return datetime.datetime.strptime(field, "%Y%m%dT%H%M%S").strftime("%Y-%m-%dT%H:%M:%SZ")
    return datetime.datetime.fromtimestamp(int(field), datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@functools.lru_cache(maxsize=64)
def _keys(data: bytes) -> tuple[Key, ...]:
    if not data.strip():
        raise AnsibleFilterError("this is not an OpenPGP public key: it is empty")
    with _keyring(data) as home:
        listed = _gpg(home, "--with-colons", "--check-sigs").stdout.decode(errors="replace")
    keys: list[Key] = []
    for block in re.split(r"^(?=pub:)", listed, flags=re.MULTILINE)[1:]:
        records = [
            line.split(":") for line in re.split(r"^sub:", block, maxsplit=1, flags=re.MULTILINE)[0].splitlines()
        ]
        public = records[0]
        fingerprint = next(r[9] for r in records if r[0] == "fpr")
        own = [r for r in records if r[0] == "sig" and r[1] == "!" and fingerprint in (r[12], r[4])]
        used = {HASHES.get(r[15], f"hash {r[15]}") for r in own if r[10][:2] in SELF_CLASSES}
        keys.append(Key(fingerprint, _time(public[5]), _time(public[6]), tuple(sorted(used))))
    if not keys:
        raise AnsibleFilterError("gpg refuses this OpenPGP key: it has no user ID with a valid self-signature")
    return tuple(keys)


def openpgp_keys(text: str | bytes) -> list[dict[str, Any]]:
    """What a public key file holds: of each primary key its fingerprint, times and self-signatures.

    text: armoured or binary. expires: '' for never, as gpg takes it from the newest valid self-signature.
    self_signature_hashes: names of the hash algorithms of the self-signatures that gpg verified, each once.
    """
    return [
        {"fingerprint": k.fingerprint, "created": k.created, "expires": k.expires, "self_signature_hashes": [*k.hashes]}
        for k in _keys(_bytes(text))
    ]


def normal(fingerprint_text: str) -> str:
    """A fingerprint as people write it, without blanks and in capitals."""
    return re.sub(r"[\s:]|^0[xX]", "", str(fingerprint_text)).upper()


def _armour(data: bytes, fingerprints: Sequence[str]) -> str:
    with _keyring(data) as home:
        done = _gpg(home, "--armor", "--export", *fingerprints)
    if done.returncode or not done.stdout:
        raise AnsibleFilterError(f"gpg does not export the key: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode("ascii")


def _declared(text: str | bytes, declared: str | Sequence[str]) -> list[str]:
    wanted = {normal(f) for f in ([declared] if isinstance(declared, str) else declared)}
    return [key.fingerprint for key in _keys(_bytes(text)) if key.fingerprint in wanted]


def openpgp_only(text: str | bytes, declared: str | Sequence[str]) -> str:
    """The armoured keys of a file whose fingerprints are declared, and no other that it may hold.

    '' where the file has none of them: nothing of it is to be trusted.
    """
    chosen = _declared(text, declared)
    return _armour(_bytes(text), chosen) if chosen else ""


def openpgp_holds(text: str | bytes, declared: str | Sequence[str]) -> bool:
    """Whether a file holds a declared key; false of a damaged file, too."""
    try:
        return bool(_declared(text, declared))
    except AnsibleFilterError:
        return False


def openpgp_trusted(texts: Mapping[str, str], declared: Mapping[str, str | Sequence[str]]) -> dict[str, str]:
    """openpgp_only for several files by name."""
    return {name: openpgp_only(text, declared[name]) for name, text in texts.items() if name in declared}


def openpgp_armour(text: str | bytes) -> str:
    """All keys of a file, armoured; for binary files that have to pass through templates."""
    return _armour(_bytes(text), [key.fingerprint for key in _keys(_bytes(text))])


def openpgp_files(paths: Iterable[str]) -> dict[str, str]:
    """Key files by the name of their repository: that of the file without its ending."""
    return {PurePosixPath(path).stem: path for path in paths}
