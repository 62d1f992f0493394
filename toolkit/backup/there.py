"""What a new head does with a backup. Sent there as text, for nothing is installed on it yet; standard library alone.

state     what this head has: a pool that runs, a restoration that is under way
stage     take the compressed tar of stdin into a folder of its own, all of it or nothing, and put the keys in place by
          which role slurm and role horovod go on instead of making new ones
take      by role slurm, before its daemons start: the accounting database and the controller's state
finish    after the deployment: figures, images and runs
Each can be done again after a power cut.
"""

from __future__ import annotations

import contextlib
import grp
import hashlib
import json
import os
import pwd
import re
import shutil
import struct
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

BASE = Path("/var/lib/elastic-ai/restore")
NOTE, OWNERS, PROGRAM = "restore.json", "owners.json", "there.py"
DONE = "restored.json"
HEADER, MANIFEST = "backup.json", "manifest.json"
DATABASE = "slurm_acct_db"
STATE = Path("/var/lib/slurm/slurmctld")
SECRETS = {
    "key/munge.key": ("/etc/elastic-ai/slurm", 0o700),
    "pool/nodes.json": ("/etc/elastic-ai/slurm", 0o700),
    "registry/certificates": ("/etc/elastic-ai/registry", 0o755),
}
LATER = {
    "prometheus/data": ("/var/lib/prometheus/metrics2", ("prometheus.service",)),
    "registry/images": ("/var/lib/docker-registry", ("docker-registry.service",)),
    "runs/revalidate": ("/var/lib/elastic-ai-revalidate", ()),
    "ledgers": ("/var/lib/elastic-ai/restored-ledgers", ()),
}
_CHUNK = 1 << 20
#: How Slurm's job_state begins: a text's length and the text, the protocol, the time, and the next job's number.
_JOBS = struct.Struct(">I17sHQI")
_AT, _MOST_JOBS = _JOBS.size - 4, 0x03FF0000


class Refusal(Exception):
    """One sentence: what is wrong and what to do."""


def _ran(*words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    english = {**os.environ, "LC_ALL": "C", "LANGUAGE": ""}
    return subprocess.run(words, capture_output=True, check=False, env=english, **more)


def note(base: Path = BASE) -> dict[str, Any]:
    """How far a restoration has come; empty where there is none."""
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads((base / NOTE).read_text("utf-8")))
    return {}


def _noted(base: Path, said: dict[str, Any]) -> None:
    new = base / (NOTE + ".new")
    with new.open("w", encoding="utf-8") as out:
        out.write(json.dumps(said))
        out.flush()
        os.fsync(out.fileno())
    new.replace(base / NOTE)
    _names_kept(base)


def _names_kept(folder: Path) -> None:
    """Its names onto the disk, against a power cut."""
    handle = os.open(str(folder), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def state(base: Path = BASE, controller: Path = STATE) -> dict[str, Any]:
    """What is on this head."""
    runs = (
        _ran("systemctl", "is-active", "slurmctld.service").stdout.strip() == b"active" if _has("systemctl") else False
    )
    kept = any((controller / name).exists() for name in ("job_state", "job_state.old"))
    done = dict[str, Any]()
    with contextlib.suppress(OSError, ValueError):
        done = dict(json.loads((base.parent / DONE).read_text("utf-8")))
    return {"controller_runs": runs, "pool": kept, "restore": note(base), "done": done}


def _has(program: str) -> bool:
    return shutil.which(program) is not None


def stage(
    stream: Any, sha256: str, source: bytes, base: Path = BASE, root: Path = Path("/"), highest: int = 0
) -> dict[str, Any]:
    """Unpack into a folder that is there when all of it has come as it was written; then put the keys in place.
    highest: number of a job that runs on a node."""
    there = note(base)
    if there.get("sha256") != sha256 or "staged" not in there:
        new = base.with_name(base.name + ".part")
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(base, ignore_errors=True)
        new.mkdir(mode=0o700, parents=True)
        try:
            header = _unpacked(stream, new)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        (new / PROGRAM).write_bytes(source)
        there = {"sha256": sha256, "header": header, "staged": True, "taken": False}
        _noted(new, there)
        new.replace(base)
        _names_kept(base.parent)
    if highest > there.get("highest", 0):
        there = {**there, "highest": highest}
        _noted(base, there)
    shutil.rmtree(_gone(base), ignore_errors=True)
    for name, (folder, mode) in SECRETS.items():
        _secret(base / name, root / folder.lstrip("/"), mode)
    return there


def _secret(found: Path, folder: Path, mode: int) -> None:
    if not found.exists():
        return
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    for path in sorted(found.iterdir()) if found.is_dir() else [found]:
        if not path.is_file():
            continue
        target = folder / path.name
        new = target.with_name(f".{target.name}.new")
        new.touch(mode=0o600)
        new.write_bytes(path.read_bytes())
        new.chmod(0o644 if path.suffix == ".crt" else 0o600)
        new.replace(target)


def _unpacked(stream: Any, target: Path) -> dict[str, Any]:
    digests: dict[str, str] = {}
    owners: dict[str, Any] = {}
    said: dict[str, Any] = {}
    with tarfile.open(fileobj=stream, mode="r|gz") as tar:
        for member in tar:
            path = target / member.name
            if member.name.startswith("/") or ".." in Path(member.name).parts:
                raise Refusal(f"{member.name}: a name that leaves the backup; nothing was changed")
            if member.isdir():
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            elif member.issym():
                if member.linkname.startswith("/") or ".." in Path(member.linkname).parts:
                    continue
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.symlink_to(member.linkname)
                continue
            elif member.isreg():
                held = tar.extractfile(member)
                assert held is not None
                if member.name in (HEADER, MANIFEST):
                    said[member.name] = json.loads(held.read())
                    continue
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                digests[member.name] = _written(held, path)
            else:
                continue
            owners[member.name] = [member.uname, member.gname, member.mode & 0o777]
    if said.get(MANIFEST, {}).get("sha256") != digests:
        raise Refusal("the backup did not come as it was made; nothing was changed, run the command again")
    (target / OWNERS).write_text(json.dumps(owners), "utf-8")
    return dict(said[HEADER])


def _written(held: Any, path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("wb") as out:
        os.fchmod(out.fileno(), 0o600)
        while data := held.read(_CHUNK):
            out.write(data)
            digest.update(data)
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()


def _number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def take(base: Path = BASE, controller: Path = STATE) -> dict[str, Any]:
    """The accounting database and the controller's state, with both daemons stopped. Refusal where this Slurm is older
    than the one that wrote them."""
    there = note(base)
    if not there or there.get("taken"):
        return {"changed": False}
    was = str(there["header"].get("slurm", ""))
    now = _ran("slurmctld", "-V").stdout.decode("utf-8", "replace").strip() if _has("slurmctld") else ""
    if was and now and _number(now) < _number(was):
        raise Refusal(
            f"the backup is of Slurm {was} and this head has {now}: an older controller cannot read its state; install "
            "the release that the old head had. Nothing was changed"
        )
    if _has("systemctl"):
        _ran("systemctl", "stop", "slurmctld.service", "slurmdbd.service")
        _ran("systemctl", "start", "mariadb.service")
    dump = base / "accounting/dump.sql"
    if dump.exists():
        _loaded(dump)
    if not there.get("state_taken"):
        _placed(base, "slurm/state", controller)
        _numbered(base, controller, there.get("highest", 0))
    _noted(base, {**there, "taken": True, "state_taken": True})
    return {"changed": True}


def _loaded(dump: Path) -> None:
    client = shutil.which("mariadb") or shutil.which("mysql")
    if client is None:
        raise Refusal("this head has no client of MariaDB, and the backup has an accounting database")
    with dump.open("rb") as text:
        for words, given in ((["--execute", f"DROP DATABASE IF EXISTS {DATABASE}"], None), ([], text)):
            done = _ran(client, *words, stdin=given or subprocess.DEVNULL)
            if done.returncode != 0:
                said = done.stderr.decode("utf-8", "replace").strip()[-300:]
                raise Refusal(f"MariaDB did not take the accounting database: {said}; run the same command again")


def _placed(base: Path, name: str, target: Path) -> None:
    """In the place of what is there, which is kept in the folder `before`; owners as they were. What is not in the
    backup changes nothing; what was placed before a power cut gets its owners."""
    if not (base / name).exists():
        _owned(base, name, target)
        return
    if target.exists():
        kept = base / "before" / name
        shutil.rmtree(kept, ignore_errors=True)
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.move(str(target), str(kept))
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(str(base / name), str(target))
    _owned(base, name, target)


def _next_job(path: Path) -> int:
    """The number that the next job gets by a file of the controller's state; 0 where it does not begin as known."""
    with contextlib.suppress(OSError, struct.error):
        length, text, _, _, number = _JOBS.unpack(path.read_bytes()[: _JOBS.size])
        if (length, text) == (17, b"PROTOCOL_VERSION\0") and number < _MOST_JOBS:
            return int(number)
    return 0


def _numbered(base: Path, controller: Path, highest: int) -> None:
    """Jobs that began after the backup may still run on a node. No number is given a second time: the node would refuse
    that job, and Slurm would drain the node for a "Duplicate jobid"."""
    replaced = base / "before/slurm/state"
    least = max([highest + 1, *(_next_job(replaced / name) for name in ("job_state", "job_state.old"))])
    for name in ("job_state", "job_state.old"):
        if 0 < _next_job(controller / name) < least < _MOST_JOBS:
            with (controller / name).open("r+b") as state:
                state.seek(_AT)
                state.write(struct.pack(">I", least))
                state.flush()
                os.fsync(state.fileno())


def _owned(base: Path, name: str, target: Path) -> None:
    """Owner and mode as they were, where this head knows the user."""
    owners = json.loads((base / OWNERS).read_text("utf-8"))
    for member, (user, group, mode) in owners.items():
        if member != name and not member.startswith(name + "/"):
            continue
        path = target / member[len(name) :].lstrip("/")
        with contextlib.suppress(FileNotFoundError):
            with contextlib.suppress(KeyError, PermissionError):
                os.chown(path, pwd.getpwnam(user).pw_uid, grp.getgrnam(group).gr_gid)
            path.chmod(mode)


def finish(base: Path = BASE, root: Path = Path("/")) -> dict[str, Any]:
    """Figures in the place of the new head's few; images beside those that are there; runs; ledgers for reading."""
    there, done = note(base), []
    owners = json.loads((base / OWNERS).read_text("utf-8")) if there else {}
    for name, (where, units) in LATER.items():
        target = root / where.lstrip("/")
        if not any(one == name or one.startswith(name + "/") for one in owners):
            continue
        runs = [unit for unit in units if _has("systemctl") and _ran("systemctl", "is-active", unit).returncode == 0]
        for unit in runs:
            _ran("systemctl", "stop", unit)
        try:
            if name.startswith(("registry", "runs")):
                _merged(base, name, target)
            else:
                _placed(base, name, target)
        finally:
            for unit in runs:
                _ran("systemctl", "start", unit)
        done.append(name.split("/")[0])
    if there:
        (base.parent / DONE).write_text(json.dumps(there), "utf-8")
        base.replace(_gone(base))  # so that one that is cut off here has come to its end
    shutil.rmtree(_gone(base), ignore_errors=True)
    return {"finished": done}


def _gone(base: Path) -> Path:
    """What is being removed."""
    return base.with_name(base.name + ".gone")


def _merged(base: Path, name: str, target: Path) -> None:
    """What is not there yet: images are named by their content, and runs by their time. Owners of all, for a power cut
    may have come between the two."""
    for path in sorted((base / name).rglob("*")):
        inside = path.relative_to(base / name)
        if path.is_dir() and not path.is_symlink():
            (target / inside).mkdir(parents=True, exist_ok=True)
        elif not (target / inside).exists():
            (target / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(str(path), str(target / inside))
    _owned(base, name, target)


def main(words: list[str], source: bytes = b"") -> int:
    """One verb; its answer as a line of JSON."""
    try:
        if words[0] == "stage":
            said = stage(sys.stdin.buffer, words[1], source, highest=int(words[2]) if len(words) > 2 else 0)
        else:
            said = {"state": state, "take": take, "finish": finish}[words[0]]()
    except Refusal as fault:
        print(json.dumps({"refused": str(fault)}))
        return 2
    except (tarfile.TarError, EOFError):
        print(json.dumps({"refused": "the backup did not come to its end; nothing was changed, run the command again"}))
        return 2
    except OSError as fault:  # a full disk, for example
        where = f"{fault.filename}: " if fault.filename else ""
        print(json.dumps({"refused": f"{where}{fault.strerror or fault} ({words[0]}); mend that and run it again"}))
        return 2
    print(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], globals().get("SOURCE", b"")))
