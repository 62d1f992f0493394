"""OpenPGP keys of repositories: those that sign at the source, and the mirror's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from toolkit.errors import UsageFault
from toolkit.mirror.tools import run
from validation.base import bounded
from validation.base.files import users_folder
from validation.base.temporary import room

OWNER = "Elastic AI mirror"


def key_home() -> Path:
    """Where the key that signs this user's mirrors is kept, apart from every mirror."""
    base = users_folder("XDG_DATA_HOME", ".local/share")
    return base / "elastic-ai-toolkit" / "mirror-key"


@contextmanager
def home() -> Iterator[list[str]]:
    """gpg with a home of its own, as the first words of a command; its agent ends with it."""
    with room("eai-mirror-gpg") as folder, _ended(folder):
        yield words(folder)


def words(folder: Path) -> list[str]:
    """gpg with this folder as its home."""
    return ["gpg", "--homedir", str(folder), "--batch", "--quiet", "--no-tty", "--pinentry-mode=loopback"]


@contextmanager
def _ended(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        run(["gpgconf", "--homedir", str(folder), "--kill", "all"], package="gnupg")
        bounded.run(["gpgconf", "--homedir", str(folder), "--remove-socketdir"])  # below /run/user, if any


def fingerprints(key: Path) -> list[str]:
    """Of each key in a file, its own and not those of its subkeys. ToolFault where it is no key."""
    with home() as gpg:
        listed = run([*gpg, "--with-colons", "--show-keys", str(key)], package="gnupg").splitlines()
    return [
        listed[place + 1].split(":")[9]
        for place, line in enumerate(listed[:-1])
        if line.startswith("pub:") and listed[place + 1].startswith("fpr:")
    ]


def only(key: Path, wanted: Sequence[str], name: str, target: Path) -> None:
    """Write of a key file those keys that are declared, armoured. UsageFault where none of them is in it."""
    there = fingerprints(key)
    kept = [one for one in there if one in wanted]
    if not kept:
        asked = ", ".join(wanted) or "none is declared: set repos_fingerprints"
        raise UsageFault(
            f"repository {name}: its key is {', '.join(there) or 'none'}, and the declared one is {asked}; "
            "nothing of it was taken"
        )
    join([key], kept, target)


def join(keys: Sequence[Path], wanted: Sequence[str], target: Path) -> None:
    """Write the wanted keys of several files as one, armoured."""
    with home() as gpg:
        run([*gpg, "--import", *map(str, keys)], package="gnupg")
        target.write_text(run([*gpg, "--armor", "--export", *wanted], package="gnupg"), encoding="ascii")


@contextmanager
def _own() -> Iterator[list[str]]:
    """gpg with the key that signs this user's mirrors, as the first words of a command.

    By a short name: where no /run/user is, the agent's socket is in that folder, and its path may have 107 bytes.
    """
    folder = key_home()
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    with room("eai-mirror-gpg") as short:
        (short / "own").symlink_to(folder.resolve())
        with _ended(short / "own"):
            yield words(short / "own")


def own_key() -> str:
    """The fingerprint of the key that signs mirrors, made where there is none."""
    with _own() as gpg:
        return _own_key(gpg)


def _own_key(gpg: Sequence[str]) -> str:
    listed = run([*gpg, "--with-colons", "--list-secret-keys"], package="gnupg").splitlines()
    if not any(line.startswith("sec:") for line in listed):
        run([*gpg, "--passphrase", "", "--quick-gen-key", OWNER, "rsa3072", "sign", "never"])
        listed = run([*gpg, "--with-colons", "--list-secret-keys"]).splitlines()
    return next(line.split(":")[9] for line in listed if line.startswith("fpr:"))


def own_public(target: Path) -> None:
    """Write the mirror's own public key, armoured."""
    with _own() as gpg:
        target.write_text(run([*gpg, "--armor", "--export", _own_key(gpg)]), encoding="ascii")


def sign(file: Path, *, clear: Path | None, detached: Path) -> None:
    """Sign an index with the mirror's key: `clear` as apt's InRelease, `detached` as Release.gpg or repomd.xml.asc."""
    with _own() as gpg:
        fingerprint = _own_key(gpg)
        made = [("--detach-sign", detached), *([("--clearsign", clear)] if clear else [])]
        for kind, target in made:
            target.unlink(missing_ok=True)
            settings = ["--local-user", fingerprint, "--armor", "--digest-algo", "SHA512", "--output", str(target)]
            run([*gpg, *settings, kind, str(file)])
