"""Keys of a user's connections to their leases: one key of the user's, one host key for each lease, both made here.

They are in the user's own folder. The host key goes to the lease sealed by munge for this user alone; the ssh client
knows it before the first connection, and accepts no other.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from toolkit.lease import LeaseError
from toolkit.lease.kept.folder import own_folder

KEY, KNOWN, HOSTS, LOCK = "key", "known_hosts", "hosts", "lock"
#: Host keys of leases, the newest of them, that stay.
MOST_HOSTS = 100
_PUBLIC = re.compile(r"ssh-ed25519 [A-Za-z0-9+/=]{16,200}")


def place() -> Path:
    """Where they are."""
    return own_folder("ssh")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _made(path: Path, comment: str) -> Path:
    """The key, made where it is not there; LeaseError where it cannot be."""
    public = path.with_name(f"{path.name}.pub")
    if path.exists() and public.exists():
        return path
    for one in (path, public):
        one.unlink(missing_ok=True)
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=60, umask=0o077, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise LeaseError("ssh-keygen is not installed here; the package is openssh-client (EL: openssh)") from None
    if done.returncode:
        raise LeaseError(
            f"{path}: no key could be made: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}"
        )
    return path


def public_of(path: Path) -> str:
    """Kind and key, without the comment. LeaseError where it is none."""
    kind_and_key = " ".join(path.with_name(f"{path.name}.pub").read_text().split()[:2])
    if not _PUBLIC.fullmatch(kind_and_key):
        raise LeaseError(f"{path}.pub is no key that the toolkit made; remove it, and its private part")
    return kind_and_key


def user_key() -> Path:
    """The user's, for all their leases: it opens nothing but connections that they begin themselves."""
    folder = place()
    with _locked(folder):
        return _made(folder / KEY, "elastic-ai leases")


def host_key(name: str) -> Path:
    """Of a lease, by the name that the ssh client has for it; the client knows it from now on."""
    folder = place()
    hosts = own_folder("ssh/hosts")
    with _locked(folder):
        key = _made(hosts / name, name)
        known = sorted(hosts.glob("*.pub"), key=lambda one: one.stat().st_mtime)
        for old in known[:-MOST_HOSTS]:
            old.unlink(missing_ok=True)
            old.with_suffix("").unlink(missing_ok=True)
        lines = [f"{one.name[:-4]} {public_of(one.with_name(one.name[:-4]))}\n" for one in known[-MOST_HOSTS:]]
        new = folder / f".{KNOWN}"
        new.unlink(missing_ok=True)
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(file, "w") as stream:
            stream.writelines(lines)
        new.replace(folder / KNOWN)
        return key


def client_options() -> list[tuple[str, str]]:
    """Of ssh's configuration, what pins these keys. A file in ssh's home would need no path of ours."""
    folder = place()
    return [
        ("UserKnownHostsFile", str(folder / KNOWN)),
        ("GlobalKnownHostsFile", "/dev/null"),
        ("StrictHostKeyChecking", "yes"),
        ("IdentityFile", str(folder / KEY)),
        ("IdentitiesOnly", "yes"),
        ("IdentityAgent", "none"),
    ]
