"""Every Slurm on a node: its slurm.conf wherever it lies, and how its daemons are or would be started. Read only.

Runs on nodes: Python 3.9, standard library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Where a slurm.conf lies: built by hand, Debian's former folder, cluster managers', what a slurmd without one fetches.
SLURM_CONFS = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/usr/local/etc/slurm/slurm.conf",
    "/usr/local/slurm*/etc/slurm.conf",
    "/opt/slurm*/etc/slurm.conf",
    "/opt/slurm/*/etc/slurm.conf",
    "/cm/shared/apps/slurm/var/etc/slurm.conf",
    "/cm/shared/apps/slurm/var/etc/*/slurm.conf",
    "/run/slurm*/conf/slurm.conf",
    "/var/spool/slurm*/conf-cache/slurm.conf",
    "/var/spool/slurm/*/conf-cache/slurm.conf",
)
SLURM_DAEMONS = ("slurmd", "slurmctld", "slurmdbd")
#: Files with the environment and options of the daemons, and the units that may name others.
DEFAULTS = ("slurmd", "slurmctld", "slurm", "slurm-llnl")
UNITS = ("etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system")
#: What a cluster's Prolog and Epilog run where leases are started and ended by them.
HOOKS = {"prolog": "/elastic-ai/lease-server/bin/prolog", "epilog": "/elastic-ai/lease-server/bin/epilog"}
OWN_FOLDERS = ("/usr/sbin", "/sbin", "/usr/bin", "/bin")


def read_text(path: Path) -> str:
    """Text of a file, "" where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def at(root: Path, path: str) -> Path:
    """Where a path of the node is."""
    return root / path.lstrip("/")


def says(text: str) -> list[str]:
    """The lines of a configuration that say anything."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith(("#", ";", "--", "//"))]


def slurm_settings(root: Path, path: str) -> dict[str, Any]:
    """Controllers and name of the cluster in a slurm.conf, and of the files that it includes."""
    lines, read, wanted = [], set(), [path]
    while wanted:
        file = wanted.pop(0)
        if file in read:
            continue
        read.add(file)
        mine = says(read_text(at(root, file)))
        lines += mine
        for line in mine:
            include = re.match(r"(?i)include\s+(\S+)", line)
            if include and "%" not in include[1]:
                wanted.append(str(Path(path).parent / include[1]))
    controllers, cluster = [], ""
    for line in lines:
        told = re.match(r"(?i)(SlurmctldHost|ControlMachine|BackupController|ClusterName)\s*=\s*\"?([^\s\"#]+)", line)
        if told and told[1].lower() == "clustername":
            cluster = told[2]
        elif told:
            controllers += [one.split("(")[0] for one in told[2].split(",") if one]
    hooked = [kind for kind, mark in HOOKS.items() if _runs(root, str(Path(path).parent), lines, kind, mark)]
    found = {"controllers": list(dict.fromkeys(controllers)), "cluster": cluster, "says": len(lines)}
    return {**found, "hooked": hooked}


def _runs(root: Path, folder: str, lines: list[str], kind: str, mark: str) -> bool:
    """Whether a program of this cluster's Prolog or Epilog, as it is on this node, names the toolkit's."""
    programs = [re.match(rf"(?i){kind}\s*=\s*\"?([^\s\"#]+)", line) for line in lines]
    # a relative name is beside slurm.conf, where the controller sends it in configless clusters; patterns are taken
    patterns = [str(Path(folder) / one[1]).lstrip("/") for one in programs if one]
    return any(mark in read_text(path) for pattern in patterns for path in root.glob(pattern))


def _option(words: list[str], *names: str) -> str:
    for index, word in enumerate(words):
        for name in names:
            if word == name and index + 1 < len(words):
                return words[index + 1]
            if name.startswith("--") and word.startswith(name + "="):
                return word.partition("=")[2]
            if not name.startswith("--") and word.startswith(name) and len(word) > len(name):
                return word[len(name) :]
    return ""


def _running(root: Path, running: dict[str, list[list[str]]]) -> Iterator[dict[str, Any]]:
    for name in SLURM_DAEMONS:
        for words in running.get(name, []):
            conf = _option(words, "-f") if name != "slurmdbd" else ""
            yield {"name": name, "conf": conf, "server": _option(words, "--conf-server")}


def _starting(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Files that say how a daemon is started, with their lines: of the distributions, units, and what those name."""
    wanted = [root / folder / name for folder in ("etc/default", "etc/sysconfig") for name in DEFAULTS]
    for folder in UNITS:
        pattern = "*slurm*.service" if folder.startswith("usr/lib") else "*.service"
        wanted += [*sorted((root / folder).glob(pattern)), *sorted((root / folder).glob(f"{pattern}.d/*.conf"))]
    seen = set()
    while wanted:
        file = wanted.pop(0)
        if file in seen or not file.is_file():
            continue
        seen.add(file)
        lines = says(re.sub(r"\\\n", " ", read_text(file)))
        yield f"/{file.relative_to(root)}", lines
        if any(re.search(r"slurm(d|ctld)\b", line) for line in lines):
            named = [re.match(r"EnvironmentFile\s*=\s*-?(/\S+)", line) for line in lines]
            wanted += [at(root, one[1]) for one in named if one]


def _configured(root: Path) -> Iterator[dict[str, Any]]:
    """What the daemons would be started with: a slurm.conf of its own, a server that gives it, another program."""
    for path, lines in _starting(root):
        text = "\n".join(lines)
        if path.endswith((".service", ".conf")) and not re.search(r"(?i)slurm", text):
            continue
        name = "slurmctld" if re.search(r"slurmctld\b", text) and not re.search(r"slurmd\b", text) else "slurmd"
        server = re.search(r"--conf-server[= ]\"?([^\s\"']+)", text)
        conf = re.search(r"\bSLURM_CONF\s*=\s*[\"']?(/[^\s\"']+)", text) or re.search(
            r"(?:slurm(?:d|ctld)\b[^\n]*|_OPTIONS\s*=[^\n]*?)[\s\"'=]-f\s*[\"']?(/[^\s\"']+)", text
        )
        program = re.search(r"^ExecStart\s*=\s*[-@:+!|]*(/\S+)/slurm(?:d|ctld)\b", text, re.MULTILINE)
        other = f"{program[1]}/{name}" if program and program[1] not in OWN_FOLDERS else ""
        if server or conf or other:
            yield {
                "name": name, "conf": conf[1] if conf else "", "server": server[1] if server else "",
                "configured": path, "program": other,
            }  # fmt: skip


def read_slurm(root: Path, running: dict[str, list[list[str]]]) -> dict[str, Any]:
    """Every slurm.conf with its controllers, and the daemons that run or would, with what they are started with."""
    daemons = [*_running(root, running), *_configured(root)]
    paths = []
    for pattern in SLURM_CONFS:
        paths += [f"/{path.relative_to(root)}" for path in sorted(root.glob(pattern.lstrip("/")))]
    confs = []
    for path in dict.fromkeys([*paths, *(one["conf"] for one in daemons if one["conf"])]):
        if at(root, path).is_file():
            settings = slurm_settings(root, path)
            if settings.pop("says"):
                confs.append({"path": path, **settings})
    return {"confs": confs, "daemons": daemons}
