"""What a node is made of, so that a node after teardown can be compared with the same node before provisioning."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

# Paths that change by themselves or by any package installation, with no meaning for how a node is set up.
IGNORED = (
    "/proc",
    "/usr/local/libexec/elastic-ai-lab/unpacked",  # of the host, for all labs: filled while one provisions
    "/opt/elastic-ai-lab/torch",  # the same: copies of PyTorch
    "/sys",
    "/dev",
    "/run",
    "/tmp",
    "/var/tmp",
    "/var/backups",  # dpkg's, made by a timer at midnight
    "/var/cache",  # apt's and man's
    "/var/log",
    "/var/lib/NetworkManager",  # when which connection was up
    "/var/lib/chrony/chrony.drift",  # what the clock service has learnt, where it was there before
    "/var/lib/apt",  # fetched package lists
    "/var/lib/dpkg",  # compared as packages
    "/var/lib/rpm",
    "/var/lib/dnf",  # its history
    "/var/lib/systemd",  # stamps of timers, the random seed
    "/var/lib/ucf",  # its register's backups
    "/var/lib/private",
    "/etc/machine-id",
    "/etc/ld.so.cache",  # rebuilt from the libraries, which are compared
    # Backups that the user tools keep of the last change; the files themselves are compared.
    "/etc/passwd-",
    "/etc/group-",
    "/etc/shadow-",
    "/etc/gshadow-",
    "/etc/subuid-",
    "/etc/subgid-",
    "/etc/.pwd.lock",
    "/root/.ansible",  # Ansible's own work folder
)
# Runs on the node, with the Python that Ansible needs there anyway.
SCRIPT = """
import grp, hashlib, json, os, pwd, shutil, stat, subprocess, sys

ignored = set(json.loads(sys.argv[1]))
lines = lambda *command: subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
files = {}

def note(path):
    status = os.lstat(path)
    kind, what = stat.S_IFMT(status.st_mode), ""
    if kind == stat.S_IFLNK:
        what = os.readlink(path)
    elif kind == stat.S_IFREG:
        what = hashlib.sha256(open(path, "rb").read()).hexdigest()
    files[path] = "%o %d:%d %s" % (status.st_mode, status.st_uid, status.st_gid, what)

for folder, names, others in os.walk("/"):
    names[:] = sorted(n for n in names if os.path.join(folder, n) not in ignored and n != "__pycache__")
    for name in names + others:
        path = os.path.join(folder, name)
        if path not in ignored:
            note(path)

asked = ["dpkg-query", "-W", "-f", "${binary:Package}\\t${db:Status-Want} ${db:Status-Status} ${Version}\\n"]
if not shutil.which("dpkg-query"):
    asked = ["rpm", "-qa", "--qf", "%{NAME}-%{VERSION}-%{RELEASE}\\t%{EPOCH}\\n"]
units = [line.split()[:2] for line in lines("systemctl", "list-unit-files", "--no-legend", "--no-pager")]
links = json.loads("".join(lines("ip", "-json", "address")))
print(json.dumps({
    "files": files,
    "packages": dict(line.split("\\t") for line in lines(*asked)),
    "units": {name: state for name, state in units if state not in ("transient", "generated")},
    "failed units": {line.split()[0]: "failed" for line in lines(
        "systemctl", "list-units", "--failed", "--plain", "--no-legend", "--no-pager")},
    "users": {u.pw_name: "%d:%d %s %s" % (u.pw_uid, u.pw_gid, u.pw_dir, u.pw_shell) for u in pwd.getpwall()},
    "groups": {g.gr_name: "%d %s" % (g.gr_gid, ",".join(sorted(g.gr_mem))) for g in grp.getgrall()},
    "links": {k["ifname"]: "mtu %d, queue %d, %s" % (k["mtu"], k.get("txqlen", 0), ", ".join(
        sorted("%s/%d" % (a["local"], a["prefixlen"]) for a in k["addr_info"] if a["family"] == "inet")))
        for k in links},
}))
"""


class Lab(Protocol):
    """What can run a command on a node."""

    def ssh(self, node: str, *command: str) -> str:
        """Output of a command on a node."""


def snapshot(lab: Lab, node: str) -> dict[str, Any]:
    """Packages, files, unit states, users, groups and links of a node."""
    answer: dict[str, Any] = json.loads(
        lab.ssh(node, f"python3 -c {shlex.quote(SCRIPT)} {shlex.quote(json.dumps(IGNORED))}")
    )
    return answer


def snapshots(lab: Lab, nodes: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Those of several nodes, taken at the same time."""
    with ThreadPoolExecutor(len(nodes)) as workers:
        return dict(zip(nodes, workers.map(lambda node: snapshot(lab, node), nodes), strict=True))


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Every difference between two snapshots, one line each; none when they are equal."""
    found = []
    for kind in sorted({*before, *after}):
        old, new = before.get(kind, {}), after.get(kind, {})
        found += [f"{kind}: {name} is gone (was {old[name]})" for name in sorted(set(old) - set(new))]
        found += [f"{kind}: {name} was left behind ({new[name]})" for name in sorted(set(new) - set(old))]
        both = sorted(set(old) & set(new))
        found += [f"{kind}: {name} was {old[name]}, is {new[name]}" for name in both if old[name] != new[name]]
    return found
