"""Signed apt repositories of stand-in packages, made with dpkg-deb and gpg, and cached by what is in them."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import gzip
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from toolkit.errors import LabError
from toolkit.lab.fake_packages import CODENAMES, RELATIONS, FakeRepository, Package, fingerprint_of, load_fake_packages
from toolkit.lab.sh import run
from toolkit.lab.spec import cache_root
from validation.base.temporary import room

KEY_NAME = "Elastic AI lab stand-in (no vendor's key) <lab@elastic-ai.lab>"
#: dpkg-deb stamps files with it, so that the same data make the same packages.
EPOCH = "1700000000"
DESCRIPTION = "stand-in of the Elastic AI lab, not the vendor's software"


@dataclass(frozen=True)
class Served:
    """The made repositories: `folder`/<repo>/<os_key>/, names of the vendors' ones, the key that signs them."""

    folder: Path
    repos: tuple[str, ...]
    key: Path
    fingerprint: str


@contextlib.contextmanager
def gpg_home() -> Iterator[list[str]]:
    """gpg with a home of its own, as the first words of a command; its agent ends with it."""
    with room("eai-gpg") as home:
        try:
            yield ["gpg", "--homedir", str(home), "--batch", "--quiet", "--no-tty", "--pinentry-mode=loopback"]
        finally:
            for ending in (("--kill", "all"), ("--remove-socketdir",)):
                run(["gpgconf", "--homedir", str(home), *ending], check=False)


def make_key(folder: Path) -> str:
    """A new signing key in `folder` (key.asc and, for root alone, secret.asc); its fingerprint."""
    folder.mkdir(parents=True, exist_ok=True)
    with gpg_home() as gpg:
        run([*gpg, "--passphrase", "", "--quick-gen-key", KEY_NAME, "rsa3072", "sign", "never"])
        secret = os.open(folder / "secret.asc", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(secret, "w") as handle:
            handle.write(run([*gpg, "--armor", "--export-secret-keys"]).stdout)
        (folder / "key.asc").write_text(run([*gpg, "--armor", "--export"]).stdout)
    return fingerprint(folder / "key.asc")


def signing_key(root: Path) -> Path:
    """The folder of the key that signs this machine's stand-ins; the key is made when it is not there yet."""
    keys = root / "key"
    if not (keys / "secret.asc").is_file() or not (keys / "key.asc").is_file():
        make_key(keys)
    return keys


def fingerprint(key: Path) -> str:
    """Fingerprint of the first key in a file."""
    with gpg_home() as gpg:
        shown = run([*gpg, "--with-colons", "--show-keys", str(key)]).stdout
    return next(line.split(":")[9] for line in shown.splitlines() if line.startswith("fpr:"))


def _sign(release: Path, gpg: list[str]) -> None:
    for kind, target in (("--clearsign", "InRelease"), ("--detach-sign", "Release.gpg")):
        out = ["--armor", "--digest-algo", "SHA512", "--output", str(release.with_name(target))]
        run([*gpg, *out, kind, str(release)])


def vendor_repositories(say: Callable[[str], None]) -> Served:
    """The repositories of the packaged data, made first when the cache lacks them. Safe from several processes.

    Raises LabError for data that do not fit, or for a package that dpkg-deb refuses.
    """
    fakes = load_fake_packages()
    root = cache_root() / "vendor"
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        keys = signing_key(root)
        signer = fingerprint(keys / "key.asc")
        recipe = "\n".join([fingerprint_of(fakes), signer, Path(__file__).read_text()])
        folder = root / hashlib.sha256(recipe.encode()).hexdigest()[:12]
        if not folder.is_dir():
            say("making the vendors' stand-in packages (once per change)")
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            make_repositories(fakes, partial, keys / "secret.asc")
            partial.rename(folder)
    return Served(folder, tuple(s.repo for s in fakes if not s.of_system), keys / "key.asc", signer)


def make_repositories(fakes: list[FakeRepository], root: Path, secret: Path) -> None:
    """`root`/<repo>/<os_key>/ for every system that some package is for; signed with the key in `secret`."""
    architecture = run(["dpkg", "--print-architecture"]).stdout.strip()
    with gpg_home() as gpg:
        run([*gpg, "--import", str(secret)])
        for one in fakes:
            built: dict[str, Path] = {}
            for system in sorted({s for p in one.packages for s in p.os}):
                _make_repository(one, system, root / one.repo / system, architecture, gpg, built)


def _make_repository(
    fakes: FakeRepository, system: str, root: Path, architecture: str, gpg: list[str], built: dict[str, Path]
) -> None:
    """One system's repository; `built` has the packages of the systems before, most of which are the same."""
    suite = fakes.layout == "suite"
    pool = root / "pool" if suite else root
    pool.mkdir(parents=True)

    def entry(package: Package) -> str:
        # As in the vendors' pools the epoch is no part of the file's name.
        deb = pool / f"{package.name}_{package.version.split(':')[-1]}_{architecture}.deb"
        same = built.setdefault(package.model_dump_json(exclude={"os"}), deb)
        if same is deb:
            _build(fakes, package, deb, architecture)
        else:
            deb.hardlink_to(same)
        place = f"pool/{deb.name}" if suite else f"./{deb.name}"
        digest = hashlib.sha256(deb.read_bytes()).hexdigest()
        control = _control(fakes, package, architecture)
        return f"{control}Filename: {place}\nSize: {deb.stat().st_size}\nSHA256: {digest}\n"

    with ThreadPoolExecutor(2) as workers:
        entries = list(workers.map(entry, fakes.of(system)))
    release = root / "dists" / CODENAMES[system] if suite else root
    index = Path(f"stable/binary-{architecture}") if suite else Path()
    (release / index).mkdir(parents=True, exist_ok=True)
    text = "\n".join(entries).encode()
    (release / index / "Packages").write_bytes(text)
    (release / index / "Packages.gz").write_bytes(gzip.compress(text, mtime=int(EPOCH)))
    _write_release(release, fakes, system, architecture, [index / "Packages", index / "Packages.gz"])
    _sign(release / "Release", gpg)


def _write_release(folder: Path, fakes: FakeRepository, system: str, architecture: str, indices: list[Path]) -> None:
    lines = [f"Origin: {fakes.label}", f"Label: {fakes.label}"]
    if fakes.layout == "suite":
        lines += [f"Suite: {CODENAMES[system]}", f"Codename: {CODENAMES[system]}", "Components: stable"]
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S UTC")
    lines += [f"Architectures: {architecture}", f"Date: {date}", f"Description: {fakes.repo}: {DESCRIPTION}"]
    lines.append("SHA256:")
    for index in indices:
        data = (folder / index).read_bytes()
        lines.append(f" {hashlib.sha256(data).hexdigest()} {len(data)} {index}")
    (folder / "Release").write_text("\n".join(lines) + "\n")


def _control(fakes: FakeRepository, package: Package, architecture: str) -> str:
    relations = {r: getattr(package, r) for r in RELATIONS}
    lines = [
        f"Package: {package.name}",
        f"Version: {package.version}",
        f"Architecture: {architecture}",
        "Maintainer: Elastic AI lab <lab@elastic-ai.lab>",
        "Section: misc",
        "Priority: optional",
        *(f"{'-'.join(w.capitalize() for w in r.split('_'))}: {text}" for r, text in relations.items() if text),
        f"Description: {package.name} ({DESCRIPTION})",
        f" Replaces the package of this name of the repository '{fakes.repo}', whose name, version and",
        " relations it has. It holds none of its software.",
    ]
    return "\n".join(lines) + "\n"


def _build(fakes: FakeRepository, package: Package, deb: Path, architecture: str) -> None:
    """Make one package."""
    with room("eai-package") as folder:
        tree = folder / "tree"
        meta = tree / "DEBIAN"
        meta.mkdir(parents=True)
        for directory in (tree, meta):
            directory.chmod(0o755)
        (meta / "control").write_text(_control(fakes, package, architecture))
        for script, text in package.scripts.items():
            (meta / script).write_text(text)
            (meta / script).chmod(0o644 if script == "triggers" else 0o755)
        for name, file in package.files.items():
            path = tree / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            if file.link is not None:
                path.symlink_to(file.link)
                continue
            path.write_text(file.content or "")
            path.chmod(int(file.mode, 8))
        # What a package brings below /etc is the administrator's to change (Debian policy 10.7.3).
        conffiles = [n for n, f in package.files.items() if n.startswith("/etc/") and f.link is None]
        if conffiles:
            (meta / "conffiles").write_text("".join(f"{n}\n" for n in conffiles))
        build = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(deb)]
        try:
            run(["env", f"SOURCE_DATE_EPOCH={EPOCH}", *build])
        except LabError as e:
            raise LabError(f"toolkit/lab/vendor/{fakes.repo}.yml: {package.name} {package.version}: {e}") from e
