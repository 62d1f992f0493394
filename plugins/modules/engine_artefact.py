#!/usr/bin/python3
"""Install one release of a remoting engine from its archive, whole or not at all."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.elastic_ai.toolkit.plugins.module_utils.plain import plain

DOCUMENTATION = r"""
module: engine_artefact
short_description: Install a remoting engine from its archive
version_added: 0.1.0
description:
  - The archive is a tar.gz with C(engine.json) (engine, release), C(bin/) and C(lib/). It is refused when its checksum
    is another, or when a member would leave its folder.
  - Where C(engine.json) says what its halves need (machine, glibc, libraries, CUDA), a node that has it not is refused
    with what is missing, before anything is unpacked.
  - It goes to I(root)/ENGINE-RELEASE in one rename; C(current) then points to it, and other releases are removed.
  - A further engine of a site has a I(root) of its own below that of the first, C(beside/NAME).
options:
  archive: {description: the archive on the node; not needed where it is installed already, type: path, default: ""}
  sha256: {description: its checksum, type: str, required: true}
  server: {description: whether the node runs the engine's server and not its client alone, type: bool, default: false}
  root: {description: folder of all releases, type: path, default: /opt/elastic-ai/engine}
author: Elastic AI Toolkit
"""
EXAMPLES = r"""
- name: Install the engine
  elastic_ai.toolkit.engine_artefact:
    archive: /opt/elastic-ai/engine/.archive.tar.gz
    sha256: "{{ remoting_engine_sha256 }}"
"""
RETURN = r"""
engine: {description: name of the engine, returned: always, type: str}
release: {description: its release, returned: always, type: str}
"""
MARK = ".sha256"
#: Where a site's further engines are, each with a folder of releases of its own (toolkit/lease/engines).
BESIDE = "beside"


class Refused(Exception):
    """The archive cannot be installed; one sentence."""


def described(text: str) -> dict[str, str]:
    """engine and release of an engine.json."""
    try:
        data: Any = json.loads(text)
        engine, release = str(data["engine"]), str(data["release"])
    except (ValueError, KeyError, TypeError):
        raise Refused("engine.json names no engine and release") from None
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", engine) or not re.fullmatch(
        r"[A-Za-z0-9][A-Za-z0-9._+-]{0,60}", release
    ):
        raise Refused(f"engine.json: {engine} {release} is no name and release")
    return {"engine": engine, "release": release}


def installed(root: Path, sha256: str) -> dict[str, str] | None:
    """What `current` holds, when it came from that archive."""
    try:
        if (root / "current" / MARK).read_text().strip() == sha256:
            return described((root / "current" / "engine.json").read_text())
    except (OSError, Refused):
        pass
    return None


def safe_members(archive: tarfile.TarFile) -> list[tarfile.TarInfo]:
    """Regular files, folders and links inside; Refused when a member would leave the folder."""
    members = archive.getmembers()
    for member in members:
        path = PurePosixPath(member.name)
        link = PurePosixPath(member.linkname) if member.issym() or member.islnk() else None
        outside = path.is_absolute() or ".." in path.parts
        if link is not None and (link.is_absolute() or ".." in link.parts):
            outside = True
        if outside or not (member.isfile() or member.isdir() or link is not None):
            raise Refused(f"its member {member.name} does not belong into such an archive")
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return members


class Node:
    """What an engine may need of this node, looked up where it is asked for."""

    def __init__(self, ldconfig: Callable[[], str]) -> None:
        """`ldconfig` gives the loader's own list (ldconfig -p)."""
        self.machine = platform.machine()
        self._ldconfig = ldconfig

    def library(self, soname: str) -> Path | None:
        """The 64-bit file that the loader takes for it, None where there is none."""
        line = re.compile(rf"\s*{re.escape(soname)} \(libc6,(?:x86-64|AArch64)[^)]*\) => (\S+)")
        found = (line.match(text) for text in self._ldconfig().splitlines())
        paths = [Path(match[1]) for match in found if match]
        return next((path for path in paths if path.is_file()), None)

    def cuda(self) -> str:
        """CUDA version of the driver's interface, "" without a driver."""
        version = ctypes.c_int()
        try:
            ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
        except (OSError, AttributeError):
            return ""
        return f"{version.value // 1000}.{version.value % 1000 // 10}" if version.value else ""


def numbers(version: str) -> list[int]:
    """For comparison."""
    return [int(number) for number in re.findall(r"\d+", version)]


def unmet(about: Any, node: Node, server: bool) -> list[str]:
    """What the node lacks for this engine, by its engine.json; nothing where that says nothing."""
    if about.get("machine") not in (None, node.machine):
        return [f"it is for {about['machine']}, and the node is {node.machine}"]
    missing = []
    libraries: dict[str, set[str]] = {}
    for part in ("server", "client") if server else ("client",):
        for soname, versions in (about.get(part) or {}).get("libraries", {}).items():
            libraries.setdefault(soname, set()).update(versions)
    for soname, versions in sorted(libraries.items()):
        path = node.library(soname)
        if path is None:
            if not soname.startswith("ld-linux"):  # the loader itself is in no list on some systems
                missing.append(f"the node has no {soname}")
            continue
        content = path.read_bytes()
        lacks = [version for version in versions if b"\0" + version.encode() + b"\0" not in content]
        if lacks:
            newest = max(lacks, key=numbers)
            missing.append(f"it needs {newest} of {soname}, which the node's ({path}) has not")
    cuda, driver = str(about.get("cuda") or ""), node.cuda() if server and about.get("cuda") else ""
    if driver and numbers(driver) < numbers(cuda):
        missing.append(f"its server is built for CUDA {cuda}, and the node's driver has CUDA {driver}")
    return missing


def refuse_unmet(archive: tarfile.TarFile, node: Node, server: bool) -> None:
    """Refused where the node lacks what the archive's engine.json says that it needs."""
    file = archive.extractfile("engine.json")
    try:
        about = json.loads(file.read()) if file else {}
        missing = unmet(about, node, server) if isinstance(about, dict) else []
    except (ValueError, TypeError, AttributeError):
        raise Refused("what its engine.json says that it needs cannot be read") from None
    if missing:
        raise Refused(f"{'; '.join(missing)}: take a release of the engine that is built for this system")


def to_disk(folder: Path) -> None:
    """Flush every file of a folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as opened:
                os.fsync(opened.fileno())


def install(archive: Path, sha256: str, root: Path, node: Node | None = None, server: bool = False) -> dict[str, str]:
    """Look whether the node has what it needs, unpack beside, look, and put in place."""
    if not archive.is_file():
        raise Refused("it is not there")
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != sha256:
        raise Refused(f"its checksum is {found}, not {sha256}")
    root.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=root, prefix=".new-"))
    try:
        try:
            with tarfile.open(archive, "r:gz") as opened:
                if node is not None:
                    refuse_unmet(opened, node, server)
                opened.extractall(scratch, members=safe_members(opened))  # noqa: S202  # checked above
            data = described((scratch / "engine.json").read_text())
        except (tarfile.TarError, EOFError, FileNotFoundError, KeyError) as fault:
            raise Refused(f"it is no engine's archive ({fault})") from None
        (scratch / MARK).write_text(sha256 + "\n")
        scratch.chmod(0o755)
        to_disk(scratch)  # else a power cut may leave a release of empty files, with the mark of a whole one
        target = root / f"{data['engine']}-{data['release']}"
        shutil.rmtree(target, ignore_errors=True)
        scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    link = root / ".current"
    link.unlink(missing_ok=True)
    link.symlink_to(target.name)
    link.replace(root / "current")
    for other in root.iterdir():
        kept = other in (target, root / BESIDE) or other.name.startswith(".") or not (other / MARK).is_file()
        if other.is_dir() and not other.is_symlink() and not kept:
            shutil.rmtree(other, ignore_errors=True)
    return data


def main() -> None:
    """Install what is not there."""
    module = AnsibleModule(
        argument_spec={
            "archive": {"type": "path", "default": ""},
            "sha256": {"type": "str", "required": True},
            "server": {"type": "bool", "default": False},
            "root": {"type": "path", "default": "/opt/elastic-ai/engine"},
        },
        supports_check_mode=True,
    )
    root, sha256 = Path(module.params["root"]), module.params["sha256"].lower()
    there = installed(root, sha256)
    if there is not None:
        module.exit_json(changed=False, **there)
    if module.check_mode:
        module.exit_json(changed=True, engine="", release="")
    node = Node(lambda: str(plain(module).run_command(["/sbin/ldconfig", "-p"])[1]))
    try:
        done = install(Path(module.params["archive"]), sha256, root, node, module.params["server"])
        module.exit_json(changed=True, **done)
    except Refused as fault:
        module.fail_json(msg=f"the engine's archive {module.params['archive']} is refused: {fault}")
    except OSError as fault:
        module.fail_json(msg=f"{fault.filename}: {fault.strerror}")


if __name__ == "__main__":
    main()
