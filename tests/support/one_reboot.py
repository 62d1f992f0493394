"""A machine of the recordings in two parts: as it arrives, and after the one reboot, by what was written before that.

The second part is made from the first: boot parameters, blacklist, module options, groups and packages that the stages
up to the barrier would have brought are there, and the kernel and the driver have been loaded by them.
"""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.node_modules import load

REPO = Path(__file__).parents[2]
REASONS = "/run/elastic-ai/reboot-required/"
GID = 987
ADDRESS = "192.0.2.11"
OFED = "25.10-1.7.1"
#: Systems for which no release of DOCA is in a set.
WITHOUT_DOCA = ("debian13", "ubuntu2604", "el10")
make: Any = load("tests/data/facts/make.py")

Json = dict[str, Any]


@dataclass(frozen=True)
class System:
    """An operating system on a machine, and the fabric port that the recording has."""

    system: str
    hardware: str
    port: str

    @property
    def name(self) -> str:
        return f"{self.system}-{self.hardware}"

    @property
    def gpus(self) -> bool:
        return any(device["vendor"] == "0x10de" for device in make.HARDWARE[self.hardware])


def recorded_systems() -> list[System]:
    """Every operating system and every machine of the recordings, each pair once."""
    found = {(system, make.OLD.get(system, "xe9680")): make.RAILS[0] for system in make.SYSTEMS}
    for site, (system, _, ports) in make.SITES.items():
        for hardware in sorted({hardware for hardware, _ in make.MACHINES[site].values()}):
            found.setdefault((system, hardware), next(iter(ports[hardware]), ""))
    return [System(system, hardware, port) for (system, hardware), port in sorted(found.items())]


def arrived(one: System) -> Json:
    """The recording of a freshly installed machine."""
    made: Json = make.recording(
        one.system, one.hardware, "node1", {"eno1": [ADDRESS], **({one.port: []} if one.port else {})}
    )
    made["modules"]["node_state"]["modules"]["mlx5_core"] = {"available": True, "loaded": True, "version": ""}
    return made | {"commands": make.commands()}


def inventory(one: System, folder: Path, recording: Json, variables: Json) -> Path:
    """Of one host: head, and GPU server where it has GPUs."""
    folder.mkdir()
    (folder / "recording.json").write_text(json.dumps(recording), encoding="utf-8")
    generations = {device["device"] for device in make.HARDWARE[one.hardware] if device["vendor"] == "0x10de"}
    new = generations <= {"0x2330", "0x22a3"}
    common = {
        "ansible_connection": "canned",
        "ansible_host": ADDRESS,
        "ansible_user": "root",
        "canned_log": str(folder / "log"),
        "canned_recording": str(folder / "recording.json"),
        "fabric_ports": [{"interface": one.port, "address": "10.80.0.11/24", "rate_gbps": 100}] if one.port else [],
        "stack_release": "current" if new else "reference-2019",
        "ofed_provider": "inbox" if not new or one.system in WITHOUT_DOCA else None,
        "slurm_unconfined_jobs": one.system == "ubuntu2204",
        "horovod_image": "registry.example.net/training:1",
        **make.STATED.get(one.system, {}),
        **variables,
    }
    common = {key: value for key, value in common.items() if value is not None}
    names = ("heads", "gpu_servers") if one.gpus else ("heads",)
    hosts = folder / "hosts.yml"
    groups = {name: {"hosts": {"node1": {}}} for name in names}
    hosts.write_text(yaml.safe_dump({"all": {"vars": common, "children": groups}}), encoding="utf-8")
    return hosts


def check(folder: Path, hosts: dict[str, Path], *options: str, playbook: str = "site.yml") -> None:
    """`site.yml --check` of each, or of another playbook."""
    environment = {
        **os.environ,
        "ANSIBLE_CONNECTION_PLUGINS": str(REPO / "tests/plugins/connection"),
        "ANSIBLE_NOCOLOR": "1",
        "HOME": str(folder),  # caches of the controller are not this user's
    }
    names = list(hosts)
    for start in range(0, len(names), 4):  # so many at once as have room
        runs = [f"{hosts[name]}:{hosts[name].parent / 'said'}" for name in names[start : start + 4]]
        subprocess.run(
            [sys.executable, str(REPO / "tests/support/playbooks.py"), *runs, "--", playbook, "--check", *options],
            cwd=REPO, env=environment, check=True, timeout=1800,
        )  # fmt: skip


def calls(hosts: Path) -> list[Json]:
    """What modules were called with."""
    log = hosts.parent / "log"
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.is_file() else []


def files(of: Iterable[Json]) -> dict[str, str]:
    """The files that would be there: their text by path."""
    found: dict[str, str] = {}
    for call in of:
        for entry in call["args"].get("files") or [] if call["module"] == "managed_files" else []:
            if entry.get("state", "present") == "present":
                content = entry["content"]
                found[entry["path"]] = content if isinstance(content, str) else json.dumps(content)
            else:
                found.pop(entry["path"], None)
    return found


def reasons(of: Iterable[Json]) -> dict[str, str]:
    """Why a reboot would be asked for, by role."""
    return {path.removeprefix(REASONS): text for path, text in files(of).items() if path.startswith(REASONS)}


def rebooted(before: Json, done: list[Json], said: str, driver: str) -> Json:
    """The machine after the reboot, with what the calls up to it brought."""
    after = copy.deepcopy(before)
    state, there = after["modules"]["node_state"], files(done)
    contents = state["contents"]
    arguments: Json = json.loads(there.get("/var/lib/elastic-ai/kernel.json") or "{}")
    words = " ".join(arguments.get("arguments", []))
    state["cmdline"] += f" {words}"
    for path, text in list(contents.items()):
        if path.startswith("/boot/"):
            contents[path] = text.replace("ro quiet", f"ro quiet {words}")
    contents["/var/lib/elastic-ai/kernel.json"] = json.dumps(arguments)
    blacklisted = any("blacklist nouveau" in text for text in there.values())
    state["modules"]["nouveau"]["loaded"] = state["modules"]["nouveau"]["loaded"] and not blacklisted
    wanted: dict[str, str] = {}
    for call in done:
        if call["module"] in ("package_set", "package_ledger"):
            wanted |= call["args"].get("wanted") or {}
        if call["module"] == "group" and call["args"].get("state", "present") == "present":
            contents["/etc/group"] = contents.get("/etc/group", "") + f"{call['args']['name']}:x:{GID}:\n"
    state["packages"] |= {name: version for name, version in wanted.items() if version and "nvidia" in name}
    if any(name.startswith("doca-") for name in wanted):
        state["files"] |= {"/usr/bin/ofed_info": "", "/var/lib/elastic-ai/ledger/ofed_doca.packages.json": ""}
        state["modules"]["mlx5_core"] = {"available": True, "loaded": True, "version": OFED}
        contents["/sys/module/mlx5_core/version"] = OFED
        after["commands"] |= {"/usr/bin/ofed_info -s": {"stdout": f"OFED-internal-{OFED}:\n"}}
    told = " ".join(re.findall(r"Would install\s+([^\"]*)", said))  # the driver waits for its preferences in check mode
    state["packages"] |= dict.fromkeys(re.findall(r"[a-z][\w.+-]*nvidia[\w.+-]*|nvidia[\w.+-]*", told), f"{driver}-1")
    if any("nvidia" in name for name in state["packages"]):
        running = {"active": True, "enabled": True}
        state["units"] |= {f"nvidia-{name}.service": running for name in ("persistenced", "fabricmanager")}
        state["modules"]["nvidia"] = {"available": True, "loaded": True, "version": driver}
        contents |= loaded_driver(there, contents)
    return after


def loaded_driver(there: dict[str, str], contents: Json) -> dict[str, str]:
    """What the driver says of itself where it was loaded with the options that are written."""
    options = " ".join(text for path, text in there.items() if path.startswith("/etc/modprobe.d/"))
    told = dict(re.findall(r"NVreg_(\w+)=(\d+)", options))
    mode = int(told.get("DeviceFileMode", "0666"), 8)
    gid = GID if "DeviceFileGID" in told and f":{GID}:" in contents.get("/etc/group", "") else 0
    said = f"ModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: {gid}\nDeviceFileMode: {mode}\n"
    modules = "nvidia_uvm 4653056 4 - Live 0x0\nnvidia 14381056 43 nvidia_uvm, Live 0x0\n"
    return {"/proc/driver/nvidia/params": said, "/proc/modules": modules}
