"""What a node has of somebody else's that roles would take over: refused, unless the inventory says that it is ours.

`preflight_take_over` names the components that are. What the ledgers of an earlier run know is the toolkit's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Json = Mapping[str, Any]

#: Component -> how the toolkit does without it, for the second way out.
COMPONENTS = {
    "slurm": "join that cluster, which leaves it as it is (slurm_pool: {join: ...}, docs/how-to/join-slurm.md), leave "
    "the scheduler out (slurm_pool: {scheduler: none}) or the node out of the inventory",
    "munge": "join its cluster (slurm_pool: {join: ...}), leave the scheduler out (slurm_pool: {scheduler: none}) or "
    "the node out of the inventory",
    "jobs": "have its administrator drain the node and wait for their end (scontrol update NodeName=... State=DRAIN), "
    "or leave the node out of the inventory",
    "scheduler": "take the node out of that system (its own command for that), or leave it out of the inventory",
    "kubernetes": "take the node out of that cluster (kubectl drain and delete), or leave it out of the inventory",
    "docker": "leave Docker out (docker_state: absent and horovod_state: absent), or move the file's settings to "
    "docker_daemon_config",
    "database": "leave the scheduler out (slurm_pool: {scheduler: none}), or give the group heads another machine",
    "ofed": "remove it (ofed_uninstall.sh --force, then a reboot), or leave the node out of the inventory",
    "driver": "remove it (runfile: nvidia-uninstall; packages: the package manager) and reboot, or leave the node out "
    "of the group gpu_servers",
    "monitoring": "leave monitoring out (monitoring_state: absent)",
    "registry": "leave the training out (horovod_state: absent), or name an image (horovod_image)",
    "libraries": "leave CUDA's libraries out (cuda_state: absent), or take the file's settings along by hand",
}
#: Component -> its name in a sentence, where it has another.
LABELS = {
    "slurm": "Slurm",
    "munge": "munge key",
    "kubernetes": "Kubernetes",
    "docker": "Docker",
    "ofed": "OFED",
    "driver": "NVIDIA driver",
    "libraries": "settings of libraries",
}
#: Files that a role writes as a whole -> component. The others of module_utils/foreign.py are told and stop nothing.
OF_FILE = {
    "/etc/default/prometheus": "monitoring",
    "/etc/default/prometheus-node-exporter": "monitoring",
    "/etc/dnf/modules.d/nvidia-driver.module": "driver",
    "/etc/docker/daemon.json": "docker",
    "/etc/docker/registry/config.yml": "registry",
    "/etc/munge/munge.key": "munge",
    "/etc/nccl.conf": "libraries",
    "/etc/prometheus/prometheus.yml": "monitoring",
    "/etc/slurm/cgroup.conf": "slurm",
    "/etc/slurm/gres.conf": "slurm",
    "/etc/slurm/job_submit.lua": "slurm",
    "/etc/slurm/slurmdbd.conf": "slurm",
    "/etc/ucx/ucx.conf": "libraries",
}
#: What does the work of a role beside it.
BESIDE = {
    "image": "another system deploys this node ({files}): what is set up here is gone when that deploys it anew",
    "time": "another program keeps time by {files}; role base installs chrony in its place",
    "firewall": "packets are filtered by {files}, which role firewall leaves alone: the nodes have to reach each other",
}
OWN_CONF = "/etc/slurm/slurm.conf"
#: What EPEL's and the makers' example files name as controller.
EXAMPLES = {"linux0", "localhost"}


def _short(name: str) -> str:
    return name.split(".")[0].lower()


def _ours(controllers: Iterable[str], wanted: Json) -> bool:
    """Whether one of these is a head of the inventory, by its name or address."""
    return named_among(controllers, wanted.get("heads") or ())


def named_among(controllers: Iterable[str], known: Iterable[str]) -> bool:
    """Whether one of a slurmd's or slurm.conf's controllers is one of these hosts, by its name or address."""
    heads = {str(name).lower() for name in known}
    every = [name for one in controllers for name in str(one).split(",") if name]  # --conf-server head1:6817,head2
    names = [name.rsplit(":", 1)[0] if name.count(":") == 1 else name for name in every]
    return any(name.lower() in heads or _short(name) in {_short(head) for head in heads} for name in names)


def _cluster(conf: Json) -> str:
    who = ", ".join(conf["controllers"]) or "an unnamed controller"
    return f"{conf['path']} of cluster {conf['cluster'] or '(unnamed)'} under {who}"


def _file(foreign: Json, path: str) -> Json:
    return next((entry for entry in foreign["files"] if entry["path"] == path), {})


def slurm_signs(observed: Json, wanted: Json) -> list[str]:
    """Signs of a Slurm under another controller."""
    foreign, slurm = observed["foreign"], observed["foreign"]["slurm"]
    known = {entry["path"]: entry for entry in foreign["files"] if entry["known"]}
    signs, others = [], set()
    running = {one["name"] for one in slurm["daemons"] if not one.get("configured")}
    for conf in slurm["confs"]:
        entry = known.get(conf["path"])
        if entry and (entry["as_written"] or _ours(conf["controllers"], wanted)):
            continue
        example = conf["controllers"] and set(conf["controllers"]) <= EXAMPLES and not running and not observed["jobs"]
        if not entry and (_file(foreign, conf["path"]).get("default") or example):
            continue
        others.add(conf["path"])
        signs.append(_cluster(conf))
    for one in slurm["daemons"]:
        mine = "/etc/slurm/slurm.conf" in known and "/etc/slurm/slurm.conf" not in others
        if one["server"] and not _ours([one["server"]], wanted):
            where = f" ({one['configured']})" if one.get("configured") else ""
            signs.append(f"{one['name']} takes its configuration from {one['server']}{where}")
        elif not one.get("configured") and not mine and not one["server"]:
            signs.append(f"{one['name']} runs")
        elif one.get("configured") and one["configured"] not in {e["path"] for e in known.values()}:
            if one["conf"] and one["conf"] not in {conf["path"] for conf in slurm["confs"]} | {OWN_CONF}:
                signs.append(f"{one['name']} reads {one['conf']} ({one['configured']})")
            if one.get("program") and not mine:
                signs.append(f"{one['configured']} starts {one['program']}")
    return list(dict.fromkeys(signs)) + [
        entry["path"]
        for entry in foreign["files"]
        if OF_FILE.get(entry["path"]) == "slurm" and not entry["known"] and not entry["default"]
    ]


def _running(count: int, who: str) -> str:
    """So many containers, as a sign."""
    return f"1 container of {who} that runs" if count == 1 else f"{count} containers of {who} that run"


def provisioned(observed: Json) -> bool:
    """Whether a run of the toolkit has brought Slurm or finished here: then the jobs are its own pool's."""
    known = {entry["path"] for entry in observed["foreign"]["files"] if entry["known"]}
    return bool(observed["provisioned_release"]) or "/etc/slurm/slurm.conf" in known


def _packages(count: list[str]) -> str:
    more = f" and {len(count) - 4} more" if len(count) > 4 else ""
    return f"packages {', '.join(count[:4])}{more}" if count else ""


def driver_signs(foreign: Json) -> list[str]:
    """A driver that no run of role nvidia_driver brought, and how it came."""
    driver = foreign["driver"]
    if "nvidia_driver" in foreign["ledgers"]:
        # Beside the toolkit's own packages: what its package manager does not know of.
        return [f"the driver of NVIDIA's runfile ({', '.join(driver['runfile'])})"] if driver["runfile"] else []
    return [
        *([f"the driver of NVIDIA's runfile ({', '.join(driver['runfile'])})"] if driver["runfile"] else []),
        *([f"the GPU operator's driver container ({driver['container'][0]})"] if driver["container"] else []),
        *([f"a driver that DKMS builds ({', '.join(driver['dkms'])})"] if driver["dkms"] else []),
        *([_packages(driver["packages"])] if driver["packages"] else []),
        *([f"kernel modules of no package ({driver['modules'][0]})"] if driver["modules"] else []),
    ]


def found(observed: Json, wanted: Json) -> dict[str, list[str]]:
    """Component -> what is there of somebody else's, in words; of an earlier release's recording its jobs alone."""
    if not observed.get("foreign"):
        alone = observed["jobs"] and not observed["provisioned_release"]
        return {"jobs": [f"jobs {', '.join(observed['jobs'])} of Slurm"]} if alone else {}
    foreign, here = observed["foreign"], wanted["takes"]
    signs: dict[str, list[str]] = {}
    files = [e for e in foreign["files"] if not e["known"] and not e["default"]]
    for entry in files:
        component = OF_FILE.get(entry["path"], "")
        if component and component != "slurm":
            signs.setdefault(component, []).append(entry["path"])
    own = provisioned(observed)
    signs["slurm"] = slurm_signs(observed, wanted)
    key = _file(foreign, "/etc/munge/munge.key")
    if signs["slurm"] and key and not key["known"]:
        signs["munge"] = [key["path"]]
    if observed["jobs"] and not own:
        signs["jobs"] = [f"jobs {', '.join(observed['jobs'])} of Slurm"]
    for who, what in sorted(foreign["agents"].items()):
        signs.setdefault("kubernetes" if who == "Kubernetes" else "scheduler", []).append(f"{who} ({', '.join(what)})")
    pods = foreign["containers"].get("k8s.io", 0)
    if pods:
        signs.setdefault("kubernetes", []).append(_running(pods, "Kubernetes"))
    running = foreign["containers"].get("moby", 0)
    if running and not own and "docker" not in foreign["ledgers"]:
        signs.setdefault("docker", []).append(_running(running, "Docker"))
    if not own and "docker" not in foreign["ledgers"]:
        for space, count in foreign["containers"].items():
            if space not in ("moby", "k8s.io", "plugins.moby"):
                who = "Podman" if space == "podman" else f"containerd (namespace {space})"
                signs.setdefault("docker", []).append(_running(count, who))
        signs.setdefault("docker", []).extend(f"{path} starts it otherwise" for path in foreign.get("docker") or ())
    if foreign["databases"]["names"] and "slurm" not in foreign["ledgers"]:
        names = ", ".join(foreign["databases"]["names"])
        signs["database"] = [f"databases {names} in {foreign['databases']['folder']}"]
    if foreign["ofed"] and not {"ofed_doca", "ofed"} & set(foreign["ledgers"]):
        signs["ofed"] = [foreign["ofed"][0]]
    signs.setdefault("driver", []).extend(driver_signs(foreign))
    if foreign["monitoring"]:
        signs.setdefault("monitoring", []).extend(f"{one} runs" for one in foreign["monitoring"])
    return {component: what for component, what in signs.items() if what and component in here}


def foreign_reasons(observed: Json, wanted: Json) -> Iterator[str]:
    """What is somebody else's, each component once, with the two ways out."""
    for component, what in found(observed, wanted).items():
        if component in (wanted.get("take_over") or ()):
            continue
        yield (
            f"somebody else's {LABELS.get(component, component)}: {'; '.join(what)}. Nothing was changed. Where that "
            f"may be replaced, say that it is yours (preflight_take_over: [{component}]); else {COMPONENTS[component]}"
        )


def _taken(observed: Json, wanted: Json) -> dict[str, str]:
    """Component -> what of it is taken over, in words: what is there and what the inventory says is its own."""
    named = wanted.get("take_over") or ()
    return {component: "; ".join(what) for component, what in found(observed, wanted).items() if component in named}


def _replaced(observed: Json) -> list[str]:
    """Files of somebody else's that no component stands for: written over, the original kept."""
    edited = [entry["path"] for entry in observed["foreign"]["files"] if not entry["known"] and not entry["default"]]
    return [path for path in edited if path not in (*OF_FILE, OWN_CONF)]


def foreign_notes(observed: Json, wanted: Json) -> list[str]:
    """What is taken over because the inventory says so, and what is written over with its original kept."""
    if not observed.get("foreign"):
        return []  # recorded by an earlier release
    notes = [
        f"somebody else's {LABELS.get(component, component)} taken over (preflight_take_over): {what}"
        for component, what in _taken(observed, wanted).items()
    ]
    beside = observed["foreign"].get("beside") or {}
    for kind, words in BESIDE.items():
        if beside.get(kind):
            notes.append(words.format(files=", ".join(beside[kind])))
    return notes + [
        f"{path} is not as its package brought it; it is replaced, and the original kept for a teardown"
        for path in _replaced(observed)
    ]


def taken_over(observed: Json, wanted: Json, before: str, today: str) -> dict[str, dict[str, str]]:
    """What was taken over on a node, by component or path: what was found, and on which day; {} where nothing was.

    What a run takes over, the next one no longer finds. So `before` is the text of the record that is on the node,
    whose entries stay; one that is found once more, and otherwise, gets the day `today` (ISO 8601).
    """
    try:
        kept = json.loads(before) if before.strip() else {}
    except ValueError:
        kept = {}  # cut short: the rest of the run is not held up by it
    kept = kept if isinstance(kept, dict) else {}
    now = {}
    if observed.get("foreign"):  # a recording of an earlier release has none
        now = _taken(observed, wanted) | dict.fromkeys(_replaced(observed), "replaced, the original kept")
    new = {what: {"found": words, "on": today} for what, words in now.items()}
    same = {what for what, entry in new.items() if (kept.get(what) or {}).get("found") == entry["found"]}
    return dict(sorted({**kept, **{what: entry for what, entry in new.items() if what not in same}}.items()))
