"""What a new head does with a backup. Sent there as text, for nothing is installed on it yet; standard library alone.

state     what this head has: a pool that runs, a restoration that is under way, what a new head has not
stage     take the compressed tar of stdin into a folder of its own, all of it or nothing, and put the keys in place by
          which role slurm and role horovod go on instead of making new ones
take      by role slurm, before its daemons start: the accounting database and the controller's state
finish    after the deployment: figures, images and runs
Each can be done again after a power cut. What is replaced goes to a folder of its own, and nothing here removes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolkit.backup import placing

PROGRAM = "there.py"
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
LIVING = {
    "a munge key": "/etc/elastic-ai/slurm/munge.key",
    "the key of a registry": "/etc/elastic-ai/registry/ca.key",
    "an accounting database": "/var/lib/mysql/slurm_acct_db",
    "figures of Prometheus": "/var/lib/prometheus/metrics2",
}
"""What a head has that was deployed, and a new one has not."""
LEAVERS, LEAVERS_IN = "/etc/elastic-ai/slurm/leavers.json", "pool/leavers.json"
_CHUNK = 1 << 20
#: How Slurm's job_state begins: a text's length and the text, the protocol, the time, and the next job's number.
_JOBS = struct.Struct(">I17sHQI")
_AT, _MOST_JOBS = _JOBS.size - 4, 0x03FF0000


def state(base: Path = placing.BASE, controller: Path = STATE, root: Path = Path("/")) -> dict[str, Any]:
    """What is on this head."""
    runs = _active("slurmctld.service")
    kept = any((controller / name).exists() for name in ("job_state", "job_state.old"))
    done = dict[str, Any]()
    with contextlib.suppress(OSError, ValueError):
        done = dict(json.loads((base.parent / DONE).read_text("utf-8")))
    has = [words for words, where in LIVING.items() if placing.filled(root / where.lstrip("/"))]
    found = {"controller_runs": runs, "pool": kept, "restore": placing.note(base), "done": done, "has": has}
    return {**found, "slurm": slurm(), "offered": _offered()}


def slurm() -> str:
    """Of the controller that is installed; "" where there is none."""
    return placing.ran("slurmctld", "-V").stdout.decode("utf-8", "replace").strip() if _has("slurmctld") else ""


def _offered() -> str:
    """The version that this head's package sources have now; a deployment may add others."""
    said = (
        placing.ran("apt-cache", "policy", "slurmctld").stdout.decode("utf-8", "replace") if _has("apt-cache") else ""
    )
    found = re.search(r"Candidate: (\d\S*)", said)
    return found[1] if found is not None else ""


def older(now: str, was: str) -> bool:
    """Whether a controller is older than the one that wrote a state, which it cannot read then."""
    return bool(was and now) and _number(now) < _number(was)


def _active(unit: str) -> bool:
    return _has("systemctl") and placing.ran("systemctl", "is-active", unit).returncode == 0


def _has(program: str) -> bool:
    return shutil.which(program) is not None


def stage(
    stream: Any, sha256: str, source: bytes, base: Path = placing.BASE, root: Path = Path("/"), highest: int = 0
) -> dict[str, Any]:
    """Unpack into a folder that is there when all of it has come as it was written; then put the keys in place.
    highest: number of a job that runs on a node."""
    there = placing.note(base)
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
        there["replaced"] = time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime())
        placing.noted(new, there)
        new.replace(base)
        placing.names_kept(base.parent)
    if highest > there.get("highest", 0):
        there = {**there, "highest": highest}
        placing.noted(base, there)
    shutil.rmtree(_gone(base), ignore_errors=True)
    for name, (folder, mode) in SECRETS.items():
        _secret(base / name, root / folder.lstrip("/"), mode, placing.replaced(base))
    return there


def _secret(found: Path, folder: Path, mode: int, kept: Path) -> None:
    if not found.exists():
        return
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    for path in sorted(found.iterdir()) if found.is_dir() else [found]:
        if not path.is_file():
            continue
        target = folder / path.name
        if target.is_file() and target.read_bytes() != path.read_bytes():
            place = placing.room(kept / folder.name) / path.name
            if not (place.exists() and place.read_bytes() == target.read_bytes()):
                placing.copied(target, placing.free(place))
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
                raise placing.Refusal(f"{member.name}: a name that leaves the backup; nothing was changed")
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
        raise placing.Refusal("the backup did not come as it was made; nothing was changed, run the command again")
    (target / placing.OWNERS).write_text(json.dumps(owners), "utf-8")
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


def take(base: Path = placing.BASE, controller: Path = STATE, root: Path = Path("/")) -> dict[str, Any]:
    """The accounting database and the controller's state, with both daemons stopped. Refusal where this Slurm is older
    than the one that wrote them."""
    there = placing.note(base)
    if not there or there.get("taken"):
        return {"changed": False}
    was, now, kept = str(there["header"].get("slurm", "")), slurm(), placing.replaced(base)
    if older(now, was):
        before = f"; what was there before is in {kept}" if kept.exists() else ""
        raise placing.Refusal(
            f"the backup is of Slurm {was} and this head has {now}: an older controller cannot read its state; install "
            "the release that the old head had, and run the same command again. Database and state are as they were; "
            f"the keys of pool and registry are the backup's already{before}"
        )
    if _has("systemctl"):
        placing.ran("systemctl", "stop", "slurmctld.service", "elastic-ai-pool-sync.service", "slurmdbd.service")
        placing.ran("systemctl", "start", "mariadb.service")
    dump = base / "accounting/dump.sql"
    if dump.exists():
        _loaded(dump, base)
        _limits(base, root)
    if not there.get("state_taken"):
        placing.placed(base, "slurm/state", controller)
        _numbered(base, controller, there.get("highest", 0))
    placing.noted(base, {**placing.note(base), "taken": True, "state_taken": True})
    return {"changed": True}


def _limits(base: Path, root: Path) -> None:
    """Whom the pool's program has told the database to hold: what it knows of that is as old as the database."""
    target = root / LEAVERS.lstrip("/")
    if target.exists() and not (base / LEAVERS_IN).exists():
        placing.carried(target, placing.free(placing.replaced(base) / "slurm" / target.name))
    _secret(base / LEAVERS_IN, target.parent, 0o700, placing.replaced(base))


def _loaded(dump: Path, base: Path) -> None:
    client = shutil.which("mariadb") or shutil.which("mysql")
    if client is None:
        raise placing.Refusal("this head has no client of MariaDB, and the backup has an accounting database")
    if not placing.note(base).get("database_kept"):
        _database_kept(client, placing.replaced(base) / "accounting/dump.sql")
        placing.noted(base, {**placing.note(base), "database_kept": True})
    with dump.open("rb") as text:
        for words, given in ((["--execute", f"DROP DATABASE IF EXISTS {DATABASE}"], None), ([], text)):
            done = placing.ran(client, *words, stdin=given or subprocess.DEVNULL)
            if done.returncode != 0:
                said = done.stderr.decode("utf-8", "replace").strip()[-300:]
                raise placing.Refusal(
                    f"MariaDB did not take the accounting database: {said}; run the same command again"
                )


def _database_kept(client: str, place: Path) -> None:
    """The one that is there, as text; one without tables is as good as none."""
    if not placing.ran(client, "--batch", "--execute", f"SHOW TABLES IN {DATABASE}").stdout.strip():
        return
    part = placing.room(place.parent) / (place.name + placing.PART)
    words = [shutil.which("mariadb-dump") or "mysqldump", "--single-transaction", "--quick", "--routines"]
    with part.open("wb") as out:
        os.fchmod(out.fileno(), 0o600)
        english = {**os.environ, "LC_ALL": "C", "LANGUAGE": ""}
        words += ["--databases", DATABASE]
        done = subprocess.run(words, stdout=out, stderr=subprocess.PIPE, check=False, env=english)
        os.fsync(out.fileno())
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()[-300:]
        raise placing.Refusal(
            f"the accounting database of this head was not kept: {said}; mend that, or remove it yourself "
            f"(DROP DATABASE {DATABASE}), and run the same command again"
        )
    part.replace(placing.free(place))


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
    before = [path for path in (placing.replaced(base) / "slurm").rglob("job_state*") if path.is_file()]
    least = max([highest + 1, *map(_next_job, before)])
    for name in ("job_state", "job_state.old"):
        if 0 < _next_job(controller / name) < least < _MOST_JOBS:
            with (controller / name).open("r+b") as state:
                state.seek(_AT)
                state.write(struct.pack(">I", least))
                state.flush()
                os.fsync(state.fileno())


def finish(base: Path = placing.BASE, root: Path = Path("/")) -> dict[str, Any]:
    """Figures in the place of the new head's few; images beside those that are there; runs; ledgers for reading."""
    there, done, kept = placing.note(base), [], placing.replaced(base)
    owners = json.loads((base / placing.OWNERS).read_text("utf-8")) if there else {}
    for name, (where, units) in LATER.items():
        target = root / where.lstrip("/")
        if not any(one == name or one.startswith(name + "/") for one in owners):
            continue
        runs = [unit for unit in units if _active(unit)]
        for unit in runs:
            placing.ran("systemctl", "stop", unit)
        try:
            if name.startswith(("registry", "runs")):
                placing.merged(base, name, target)
            else:
                placing.placed(base, name, target)
        finally:
            for unit in runs:
                placing.ran("systemctl", "start", unit)
        done.append(name.split("/")[0])
    if (base / "before").exists():  # of a restoration that an earlier release began
        placing.carried(base / "before", placing.free(kept / "before"))
    if there:
        (base.parent / DONE).write_text(json.dumps(there), "utf-8")
        base.replace(_gone(base))  # so that one that is cut off here has come to its end
    shutil.rmtree(_gone(base), ignore_errors=True)
    return {"finished": done, "replaced": str(kept) if there and kept.exists() else ""}


def _gone(base: Path) -> Path:
    """What is being removed."""
    return base.with_name(base.name + ".gone")


def main(words: list[str], source: bytes = b"") -> int:
    """One verb; its answer as a line of JSON."""
    try:
        if words[0] == "stage":
            said = stage(sys.stdin.buffer, words[1], source, highest=int(words[2]) if len(words) > 2 else 0)
        else:
            verbs: dict[str, Callable[[], dict[str, Any]]] = {"state": state, "take": take, "finish": finish}
            said = verbs[words[0]]()
    except placing.Refusal as fault:
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
