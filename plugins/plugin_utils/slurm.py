"""What Slurm's configuration says about nodes, built once for the whole cluster from what each node is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath as Path
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.slurm_cores import ranges

#: Slurm drains a node with less memory than configured; MemTotal moves a little with every kernel.
MEMORY_SHARE = 0.95
MEMORY_STEP_MIB = 256
#: A lease does its work in a unit of its own and needs no core: leases may lie on one core, by asking for it.
#: What limits them is ports, two of a thousand for each lease by default, and never cores. Jobs that do not ask share
#: with nobody.
SHARED = "OverSubscribe=YES:1120"
#: Systems whose Slurm (before 22.05) does not know cgroup v2: nothing keeps a job from the GPUs of others there.
WITHOUT_CGROUP_V2 = frozenset({"ubuntu2204"})
STAND_IN_DIR = "/var/lib/elastic-ai/stand-in-gpus"
#: Databases that MariaDB makes for itself.
MARIADB_OWN = frozenset({"mysql", "performance_schema", "sys"})


def other_databases(files: Iterable[str], ours: str) -> list[str]:
    """Databases in /var/lib/mysql that are neither MariaDB's own nor `ours`.

    `files`: each database's db.opt, and all that is in `test`, which an installation may make: empty, it is nobody's.
    """
    there = [Path(name) for name in files if name.startswith("/var/lib/mysql/")]
    found = {path.parent.name for path in there if path.name == "db.opt"} - MARIADB_OWN - {ours, "test"}
    found |= {path.parent.name for path in there if path.parent.name == "test" and path.name != "db.opt"}
    return sorted(found)


def slurm_taken_over(ledger: str) -> list[str]:
    """Files of a Slurm that was here before the role, by the text of the role's ledger: no package brought them."""
    files = (json.loads(ledger) if ledger.strip() else {}).get("files") or {}
    return sorted(p for p, e in files.items() if p.startswith("/etc/slurm/") and e["original"] and not e["package"])


def slurm_confines(os_key: str) -> bool:
    """Whether the distribution's Slurm knows cgroup v2, by which a job sees its own GPUs alone."""
    return os_key not in WITHOUT_CGROUP_V2


def list_length(text: str) -> int:
    """How many numbers a kernel list such as '0-3,8' has."""
    parts = [part.split("-") for part in text.strip().split(",") if part]
    return sum(int(part[-1]) - int(part[0]) + 1 for part in parts)


def slurm_topology(cpus: int, thread_siblings: str, package_siblings: str) -> dict[str, int]:
    """Sockets, cores per socket and threads per core, from the first core's siblings.

    Where they do not multiply to `cpus`, as in a container that may use only some cores: one socket of single threads.
    """
    threads, per_package = list_length(thread_siblings) or 1, list_length(package_siblings) or cpus
    if per_package and cpus % per_package == 0 and per_package % threads == 0:
        return {"sockets": cpus // per_package, "cores": per_package // threads, "threads": threads}
    return {"sockets": 1, "cores": cpus, "threads": 1}


def slurm_memory_mib(meminfo: str, contents: Mapping[str, str] | None = None) -> int:
    """Memory that jobs may have, in MiB, from the text of /proc/meminfo.

    `contents`: cpulist and meminfo of NUMA nodes by their paths. Memory of a node without processors is not the jobs':
    it is a GPU's (as on GH200) or slower.
    """
    found = re.search(r"^MemTotal:\s+(\d+) kB", meminfo, re.MULTILINE)
    if not found:
        raise AnsibleFilterError("slurm_memory_mib: no MemTotal in /proc/meminfo")
    beside = 0
    for path, text in (contents or {}).items():
        total = re.search(r"^Node \d+ MemTotal:\s+(\d+) kB", text, re.MULTILINE)
        cpus = (contents or {}).get(re.sub(r"/meminfo$", "/cpulist", path))
        if total and cpus is not None and not cpus.strip():
            beside += int(total[1])
    usable = int((int(found[1]) - beside) / 1024 * MEMORY_SHARE)
    return max(usable // MEMORY_STEP_MIB * MEMORY_STEP_MIB, MEMORY_STEP_MIB)


def gpu_class(model: str) -> str:
    """Short name of a GPU model as users type it.

    v100 of 'Tesla V100 SXM2 16GB', pro6000 of 'RTX PRO 6000 Blackwell', rtx6000ada of 'RTX 6000 Ada Generation',
    id2399 of 'NVIDIA 0x2399' (no name in the table), a2-a16 of 'A2 / A16' (one id for both); 'gpu' of others.
    """
    found = []
    for name in model.split(" / "):
        numbered = re.search(r"\bRTX (PRO )?(\d{4}[A-Z]?)\b", name)
        lettered = re.search(r"\b([A-Z]{1,2}\d{1,4}[A-Z]?)\b", name)
        if numbered:
            ada = "ada" if re.search(r"\bAda\b", name) else ""
            found.append(f"{'pro' if numbered[1] else 'rtx'}{numbered[2].lower()}{ada}")
        elif lettered:
            found.append(lettered[1].lower())
    by_id = re.search(r"\b0x([0-9a-f]{4})\b", model)
    return "-".join(found) or (f"id{by_id[1]}" if by_id else "gpu")


def slurm_gpus(
    pci_gpus: Iterable[Mapping[str, Any]],
    declared: Mapping[str, Any],
    in_container: bool,
    nvml: bool,
    cores: Sequence[str] = (),
) -> dict[str, Any]:
    """count, type, files and how Slurm finds them. GPUs on the PCI bus come first; a container's bus is its host's.

    cores: those beside each file (slurm_gpu_cores), where they are known and Slurm does not ask NVML.
    """
    found = [] if in_container else list(pci_gpus)
    classes = sorted({gpu_class(str(g["model"])) for g in found})
    if len(classes) > 1 and not declared.get("type"):
        raise AnsibleFilterError(f"GPUs of several classes in one node ({', '.join(classes)}): set slurm_gpus.type")
    count = len(found) or int(declared.get("count") or 0)
    kind = str(declared.get("type") or (classes[0] if classes else "gpu")).lower() if count else ""
    prefix = "/dev/nvidia" if found else f"{STAND_IN_DIR}/gpu"
    return {
        "count": count,
        "type": kind,
        "files": [f"{prefix}{i}" for i in range(count)],
        "stand_in": bool(count and not found),
        "autodetect": "nvml" if found and nvml else "off",
        **({"cores": list(cores)} if found and not nvml and len(cores) == count else {}),
    }


def names_joined(nodes: Iterable[Mapping[str, Any]], key: str) -> str:
    """One attribute of several nodes as Slurm lists it."""
    return ",".join(str(n[key]) for n in nodes)


def alike(nodes: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Nodes in groups of equal hardware, each group in the order of names, so that a fleet is a few lines."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for node in sorted(nodes, key=lambda n: (len(n["name"]), n["name"])):
        own = {k: node[k] for k in sorted(node) if k not in ("name", "hostname", "address")}
        groups.setdefault(repr(own), []).append(node)
    return list(groups.values())


def file_pattern(files: Sequence[str]) -> str:
    """/dev/nvidia[0-3] of /dev/nvidia0 … /dev/nvidia3."""
    if len(files) == 1:
        return files[0]
    stem = files[0].rstrip("0123456789")
    return f"{stem}[{ranges(int(file.removeprefix(stem)) for file in files)}]"


def file_lines(gpus: Mapping[str, Any]) -> list[str]:
    """File= and Cores= of a node's GPUs; those beside the same cores are one line."""
    beside: dict[str, list[str]] = {}
    for file, cores in zip(gpus["files"], gpus.get("cores") or [""] * len(gpus["files"])):
        beside.setdefault(cores, []).append(file)
    return [f"File={file_pattern(files)}" + (f" Cores={cores}" if cores else "") for cores, files in beside.items()]


def node_lines(nodes: Iterable[Mapping[str, Any]], shards: int) -> list[str]:
    """NodeName lines of slurm.conf."""
    lines = []
    for group in alike(nodes):
        node = group[0]
        words = [f"NodeName={names_joined(group, 'name')}", f"NodeAddr={names_joined(group, 'address')}"]
        if any(n["name"] != n["hostname"] for n in group):
            words.append(f"NodeHostname={names_joined(group, 'hostname')}")
        topology = node["topology"]
        words.append(
            f"Sockets={topology['sockets']} CoresPerSocket={topology['cores']} ThreadsPerCore={topology['threads']}"
        )
        words.append(f"RealMemory={node['memory_mib']}")
        gpus = node["gpus"]
        if gpus["count"]:
            gres = f"Gres=gpu:{gpus['type']}:{gpus['count']}"
            words.append(gres + (f",shard:{gpus['count'] * shards}" if shards else ""))
        lines.append(" ".join([*words, "State=UNKNOWN"]))
    return lines


def gres_lines(nodes: Iterable[Mapping[str, Any]], shards: int) -> list[str]:
    """Lines of gres.conf, which is the same on all nodes."""
    lines = ["AutoDetect=off"]
    for group in alike(nodes):
        gpus, names = group[0]["gpus"], names_joined(group, "name")
        if not gpus["count"]:
            continue
        if gpus["autodetect"] == "nvml":
            lines.append(f"NodeName={names} AutoDetect=nvml Name=gpu Type={gpus['type']} Count={gpus['count']}")
        else:
            lines += [f"NodeName={names} Name=gpu Type={gpus['type']} {words}" for words in file_lines(gpus)]
        if shards:
            lines.append(f"NodeName={names} Name=shard Count={gpus['count'] * shards}")
    return lines


def partitions(nodes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Lines of slurm.conf by name: `all`, and one partition of every GPU class."""
    everyone = sorted(nodes, key=lambda n: (len(n["name"]), n["name"]))
    if not everyone:
        return {}
    names = names_joined(everyone, "name")
    lines = {"all": f"PartitionName=all Nodes={names} Default=YES MaxTime=INFINITE State=UP {SHARED}"}
    for kind in sorted({str(n["gpus"]["type"]) for n in everyone} - {""}):
        members = names_joined((n for n in everyone if n["gpus"]["type"] == kind), "name")
        lines[kind] = f"PartitionName={kind} Nodes={members} MaxTime=INFINITE State=UP {SHARED}"
    return lines


def slurm_cluster(
    seen: Iterable[Mapping[str, Any] | None], recorded: Iterable[Mapping[str, Any]], wanted: Iterable[str], shards: int
) -> dict[str, Any]:
    """The whole cluster: its nodes, its lines, and what they have in common.

    seen: what this run found; recorded: what the last run found, for nodes that this run does not reach; wanted: the
    inventory's nodes, which decides who belongs to the cluster at all.
    """
    found = {n["host"]: dict(n) for n in recorded} | {n["host"]: dict(n) for n in seen if n}
    nodes = [found[host] for host in wanted if host in found]
    names = [n["name"] for n in nodes]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise AnsibleFilterError(f"nodes that share a short name, which Slurm knows them by: {', '.join(twice)}")
    described = [{k: v for k, v in n.items() if k != "host"} for n in nodes]
    per_cpu = [n["memory_mib"] // (t["sockets"] * t["cores"] * t["threads"]) for n in nodes for t in [n["topology"]]]
    return {
        "nodes": nodes,
        "unknown": [host for host in wanted if host not in found],
        "node_lines": node_lines(described, shards),
        "gres_lines": gres_lines(described, shards),
        "partitions": partitions(described),
        "cgroups": bool(nodes) and all(n["cgroups"] for n in nodes),
        "memory_per_cpu_mib": min(per_cpu, default=0),
    }
