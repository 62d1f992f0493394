"""The ledger of a role's files: what was there before the toolkit, kept so that a role can be taken back."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

STATE_DIR = "/var/lib/elastic-ai"
# Folders that belong to the toolkit as a whole, whoever made them.
OUR_PREFIXES = ("/etc/elastic-ai", "/opt/elastic-ai", "/var/lib/elastic-ai", "/run/elastic-ai")
SAVED_SUFFIX = ".elastic-ai-saved"

Runner = Callable[[list[str]], tuple[int, str, str]]


def there(path: Path) -> bool:
    """Whether something is at the path, a broken link included."""
    return path.exists() or path.is_symlink()


def digest(path: Path) -> str:
    """Checksum of a file, "" of anything else."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def is_ours(path: Path) -> bool:
    """Whether a path is one of the toolkit's own folders or below one."""
    return any(path == Path(prefix) or Path(prefix) in path.parents for prefix in OUR_PREFIXES)


def write_text(path: Path, text: str) -> None:
    """Write atomically and durably: a run may be killed at any moment. A file that was there keeps owner and mode."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    target = path.resolve()  # a link stays one
    was = target.stat() if target.exists() else None
    handle, scratch = tempfile.mkstemp(dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        if was:
            os.chown(scratch, was.st_uid, was.st_gid)
        Path(scratch).chmod(was.st_mode & 0o7777 if was else 0o644)
        Path(scratch).replace(target)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


def write_json(path: Path, data: Any) -> None:
    """Write a document so."""
    write_text(path, json.dumps(data, indent=1, sort_keys=True))


def copy_as_is(source: Path, target: Path) -> None:
    """Copy a file or link with owner and mode, replacing the target atomically."""
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.elastic-ai-new")
    scratch.unlink(missing_ok=True)
    shutil.copy2(source, scratch, follow_symlinks=False)
    status = source.lstat()
    os.chown(scratch, status.st_uid, status.st_gid, follow_symlinks=False)
    if not scratch.is_symlink():
        scratch.chmod(status.st_mode & 0o7777)  # after chown, which clears setuid
    scratch.replace(target)


class FileLedger:
    """What one role wrote or made on this node, and the originals of what it replaced."""

    def __init__(self, state_dir: Path, owner: str, run: Runner) -> None:
        """Read the ledger; it may not exist yet."""
        self.root = state_dir
        self.path = state_dir / "ledger" / f"{owner}.files.json"
        self.originals = state_dir / "originals"
        self.run = run
        data = json.loads(self.path.read_text(encoding="utf-8")) if self.path.is_file() else {}
        self.files: dict[str, dict[str, Any]] = data.get("files", {})
        self.directories: dict[str, dict[str, Any]] = data.get("directories", {})
        self.warnings: list[str] = []
        self.read = json.dumps(data, sort_keys=True)

    def save(self) -> None:
        """Write the ledger when it differs from what is on disk; an empty one goes, with its empty folders."""
        data = {"files": self.files, "directories": self.directories}
        if json.dumps(data, sort_keys=True) == self.read:
            return
        if self.files or self.directories:
            write_json(self.path, data)
        else:
            self.path.unlink(missing_ok=True)
            self.prune(self.path.parent)
        self.read = json.dumps(data, sort_keys=True)

    def prune(self, folder: Path) -> None:
        """Remove a folder of the toolkit's state and those above it as far as they are empty."""
        while self.root in (folder, *folder.parents) and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent

    def others(self) -> dict[Path, dict[str, Any]]:
        """The other roles' ledgers."""
        paths = (p for p in self.path.parent.glob("*.files.json") if p != self.path)
        return {p: json.loads(p.read_text(encoding="utf-8")) for p in paths}

    def original(self, path: str) -> Path:
        """Where the original of a path is kept."""
        return self.originals / path.lstrip("/")

    def package_of(self, path: str) -> str:
        """Package that a file came from, "" when from none."""
        for command in (["dpkg-query", "-S", path], ["rpm", "-qf", "--qf", "%{NAME}:", path]):
            if shutil.which(command[0]):
                code, out, _ = self.run(command)
                return out.split(":")[0].strip() if code == 0 and not out.startswith("diversion") else ""
        return ""

    def edited(self, path: str, package: str) -> bool:
        """Whether a file of settings is not as its package brought it: dpkg keeps one that was there before."""
        if not shutil.which("dpkg-query"):
            return False
        code, out, _ = self.run(["dpkg-query", "-W", "-f", "${Conffiles}\n", package])
        packed = re.search(rf"^ {re.escape(path)} ([0-9a-f]{{32}})", out, re.MULTILINE)
        if code != 0 or not packed or not Path(path).is_file():
            return False
        return hashlib.md5(Path(path).read_bytes(), usedforsecurity=False).hexdigest() != packed[1]  # type: ignore[call-arg,unused-ignore]

    def has_package(self, name: str) -> bool:
        """Whether a package is installed, or at least not purged."""
        if shutil.which("dpkg-query"):
            code, out, _ = self.run(["dpkg-query", "-W", "-f", "${db:Status-Status} ", name])
            return code == 0 and out.strip() not in ("", "not-installed")
        return self.run(["rpm", "-q", name])[0] == 0

    def note_file(self, path: str, content: bytes) -> None:
        """Before a file is written: keep what is there, once."""
        checksum = hashlib.sha256(content).hexdigest()
        if path in self.files:
            self.files[path]["sha256"] = checksum
            self.files[path].pop("removed", None)
            return
        foreign = there(Path(path)) and not any(path in other.get("files", {}) for other in self.others().values())
        if foreign:
            self.originals.mkdir(parents=True, exist_ok=True, mode=0o700)
            copy_as_is(Path(path), self.original(path))
        package = self.package_of(path) if foreign else ""
        if package and self.edited(path, package):
            package = ""
        self.files[path] = {"original": foreign, "package": package, "sha256": checksum}
        self.note_parents(Path(path))

    def note_removal(self, path: str) -> None:
        """Before a file of somebody else's is removed: keep it. Of another role's nothing is kept."""
        if any(path in other.get("files", {}) for other in self.others().values()):
            return
        self.note_file(path, b"")
        self.files[path]["removed"] = True

    def note_parents(self, path: Path) -> None:
        """Before something is made: the folders above it that will be made with it."""
        for parent in path.parents:
            if parent.exists() or parent == self.root:
                break
            self.directories.setdefault(str(parent), {"made": "above"})

    def note_directory(self, path: str) -> None:
        """Before a directory is made, or its owner or mode changed."""
        folder = Path(path)
        if folder.is_dir():
            status = folder.stat()
            before = {"uid": status.st_uid, "gid": status.st_gid, "mode": status.st_mode & 0o7777}
            self.directories.setdefault(path, {"before": before})
            return
        self.directories[path] = {"made": "asked"}
        self.note_parents(folder)

    def release_file(self, path: str) -> None:
        """Put the original of a file back; without one the file goes."""
        entry = self.files.pop(path, {"original": False, "package": ""})
        target, kept = Path(path), self.original(path)
        for ledger, other in self.others().items():
            if path in other.get("files", {}):  # still that role's file; it inherits the original
                other["files"][path]["original"] |= entry["original"]
                other["files"][path]["package"] = entry["package"] or other["files"][path]["package"]
                write_json(ledger, other)
                return
        if entry["original"] and there(kept) and (not entry["package"] or self.has_package(entry["package"])):
            if there(target) and digest(target) not in (entry["sha256"], digest(kept)):
                copy_as_is(target, target.with_name(target.name + SAVED_SUFFIX))
                self.warnings.append(
                    f"{path} was changed after the toolkit had written it; the original is back and the changed one is"
                    f" kept as {path}{SAVED_SUFFIX}"
                )
            copy_as_is(kept, target)
        elif there(target):
            target.unlink()
        if there(kept):
            kept.unlink()
            self.prune(kept.parent)

    def release_directories(self, below: Path | None = None) -> list[str]:
        """Take back recorded directories that can go (those above a path, or all); return what was changed."""
        changed = []
        others = [Path(p) for other in self.others().values() for kind in other.values() for p in kind]
        for path in sorted(self.directories, key=len, reverse=True):
            folder, entry = Path(path), self.directories[path]
            if below is not None and (folder not in below.parents or entry.get("made") != "above"):
                continue
            shared = any(folder == other or folder in other.parents for other in others)
            if not folder.is_dir() or folder.is_symlink():
                del self.directories[path]
            elif "before" in entry:
                before = entry["before"]
                os.chown(folder, before["uid"], before["gid"])
                folder.chmod(before["mode"])
                del self.directories[path]
                changed.append(path)
            elif shared:
                continue
            elif not any(folder.iterdir()):
                folder.rmdir()
                del self.directories[path]
                changed.append(path)
            elif entry["made"] == "asked" and is_ours(folder) and below is None:
                shutil.rmtree(folder)
                del self.directories[path]
                changed.append(path)
        return changed

    def releasable_directories(self) -> list[str]:
        """What release_directories would change once the files have gone, for check mode."""
        others = [Path(p) for other in self.others().values() for kind in other.values() for p in kind]
        gone = {Path(p) for p, entry in self.files.items() if not entry["original"]}
        changed = []
        for path in sorted(self.directories, key=len, reverse=True):
            folder, entry = Path(path), self.directories[path]
            if not folder.is_dir() or folder.is_symlink():
                continue
            shared = any(folder == other or folder in other.parents for other in others)
            empty = all(child in gone for child in folder.iterdir())
            whole = entry.get("made") == "asked" and is_ours(folder)
            if "before" in entry or (not shared and (empty or whole)):
                changed.append(path)
                gone.add(folder)
        return changed
