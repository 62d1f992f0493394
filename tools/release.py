#!/usr/bin/env python3
"""Prepare a release, or build what is handed out of it. docs/releasing.md has the whole way.

tools/release.py prepare 0.2.0                 version, changelog and generated pages; look at them, and commit
tools/release.py build --out dist --key KEY    wheel, collection and sources of the commit, SHA256SUMS and its signature

`build` takes the commit alone, never a file that is not committed. Two builds of one commit, with the packages of
requirements-test.lock, are the same bytes. KEY is an OpenSSH key: the file of a private key, or that of the public key
of one in ssh-agent.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import changelog

ROOT = Path(__file__).resolve().parent.parent
NAME = "elastic-ai-toolkit"
NAMESPACE = "elastic-ai-release"
SUMS = "SHA256SUMS"
#: Every file that names the version, and the line that does.
VERSIONS = {
    "pyproject.toml": re.compile(r'^version = "(?P<version>[^"]*)"$', re.MULTILINE),
    "galaxy.yml": re.compile(r"^version: (?P<version>\S+)$", re.MULTILINE),
}


class Fault(Exception):
    """Why there is no release; `str(e)` is one sentence with what to do."""


def run(*words: str | Path, **environment: str) -> str:
    """Run a program of this Python's environment to its end; Fault with its words where it fails."""
    command = [str(word) for word in words]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    env = {**os.environ, "PATH": path, "LC_ALL": "C.UTF-8", "LANGUAGE": "", **environment}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    except FileNotFoundError:
        raise Fault(f"{command[0]} is not installed") from None
    if done.returncode != 0:
        raise Fault(f"{shlex.join(command)}: exit {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def version_of(root: Path) -> str:
    """The version that all files agree on."""
    found = {}
    for name, line in VERSIONS.items():
        match = line.search((root / name).read_text(encoding="utf-8"))
        if match is None:
            raise Fault(f"{name}: no line with a version")
        found[name] = match["version"]
    if len(set(found.values())) != 1:
        raise Fault(f"the version differs: {', '.join(f'{name} has {one}' for name, one in found.items())}")
    return next(iter(found.values()))


def prepare(version: str) -> None:
    """Set the version everywhere, make the changelog's section of the fragments, and the generated pages anew."""
    try:
        changelog.release(version, changelog.today())
    except ValueError as fault:
        raise Fault(str(fault)) from fault
    for name, line in VERSIONS.items():
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        match = line.search(text)
        if match is None:
            raise Fault(f"{name}: no line with a version")
        path.write_text(text[: match.start("version")] + version + text[match.end("version") :], encoding="utf-8")
    run(sys.executable, ROOT / "tools/make_docs.py")
    print(f"prepared {version}; look at it (git diff), run bin/test --all, commit, and tag the commit v{version}")


def build(out: Path, key: Path) -> None:
    """Fill the new folder `out` with what is handed out of the present commit."""
    if run("git", "-C", ROOT, "status", "--porcelain", "--untracked-files=no"):
        raise Fault("the tree has changes that were not committed; a release is of a commit: commit or undo them")
    version = version_of(ROOT)
    if f"\n## {version} " not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        raise Fault(f"CHANGELOG.md: has no section of {version}; run tools/release.py prepare VERSION, and commit")
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise Fault(f"{out}: is no folder; name a new one")
    if out.exists() and any(out.iterdir()):
        raise Fault(f"{out}: is not empty; name a new folder")
    if not key.is_file():
        raise Fault(f"{key}: no such key")
    run("ssh-keygen", "-l", "-f", key)
    commit = run("git", "-C", ROOT, "rev-parse", "HEAD").strip()
    when = run("git", "-C", ROOT, "log", "-1", "--format=%ct", commit).strip()
    with tempfile.TemporaryDirectory(prefix="elastic-ai-release-") as scratch:
        tree, made = Path(scratch) / "tree", Path(scratch) / "made"
        run("git", "clone", "-q", "--shared", "--no-checkout", ROOT, tree)
        run("git", "-C", tree, "checkout", "-q", "--detach", commit)
        pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation")
        run(*pip, "-w", made, tree, SOURCE_DATE_EPOCH=when)
        run(
            "ansible-galaxy",
            "collection",
            "build",
            tree,
            "--output-path",
            scratch,
            ANSIBLE_CONFIG=f"{tree}/ansible.cfg",
        )
        archive = next(Path(scratch).glob("*.tar.gz"))
        (made / archive.name).write_bytes(settled(archive.read_bytes(), int(when)))
        plain = Path(scratch) / "sources.tar"
        run("git", "-C", tree, "archive", f"--prefix={NAME}-{version}/", "-o", plain, commit)
        sources = gzip.compress(plain.read_bytes(), mtime=int(when))  # git's own differ from clone to clone
        (made / f"{NAME}-{version}.tar.gz").write_bytes(sources)
        lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(made.iterdir())]
        (made / SUMS).write_text("".join(lines), encoding="utf-8")
        run("ssh-keygen", "-q", "-Y", "sign", "-f", key, "-n", NAMESPACE, made / SUMS)
        shutil.copytree(made, out, dirs_exist_ok=True)  # whole or not at all
    print("".join(lines), end="")
    print(f"{out}: {NAME} {version}, commit {commit[:12]}; signed: {SUMS}.sig")


def settled(archive: bytes, when: int) -> bytes:
    """The archive of a collection with all that differs between two builds set: order, times, owners, modes."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as old:
        entries = {one.name: (one, _content(old, one)) for one in old.getmembers()}
    listed = json.loads(entries["FILES.json"][1])
    listed["files"].sort(key=lambda one: str(one["name"]))
    files = json.dumps(listed, indent=True).encode()
    manifest = json.loads(entries["MANIFEST.json"][1])
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(files).hexdigest()
    new = {"FILES.json": files, "MANIFEST.json": json.dumps(manifest, indent=True).encode()}
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=when, filename="") as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archived,
    ):
        for name in sorted(entries, key=lambda one: (one not in new, one)):
            entry, content = entries[name]
            content = new.get(name, content)
            entry.size, entry.mtime, entry.mode = len(content), when, 0o755 if entry.mode & 0o100 else 0o644
            entry.uid = entry.gid = 0
            entry.uname, entry.gname, entry.pax_headers = "", "", {}
            archived.addfile(entry, io.BytesIO(content) if entry.isfile() else None)
    return packed.getvalue()


def _content(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(entry) if entry.isfile() else None
    return file.read() if file is not None else b""


def main() -> int:
    """Do one of the two."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("prepare", help="set the version, write the changelog's section and the generated pages")
    one.add_argument("version", help="three numbers, for example 0.2.0")
    one = commands.add_parser("build", help="wheel, collection, sources, SHA256SUMS and signature of this commit")
    one.add_argument("--out", type=Path, required=True, help="a new folder")
    one.add_argument("--key", type=Path, required=True, help="OpenSSH key that signs SHA256SUMS")
    asked = parser.parse_args()
    os.umask(0o022)  # modes of files are in what is handed out
    try:
        if asked.command == "prepare":
            prepare(asked.version)
        else:
            build(asked.out, asked.key)
    except Fault as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
