"""Reaches no host: answers every module from a recording of a node, or as a bare node would.

Two uses. `site.yml --check` for operating systems and hardware that nobody here has: facts come from a recording,
everything else from what a freshly installed node would say, so that package tables, templates and conditionals are
worked through for that system. And what a run costs the *controller*: no process, no network, nothing to wait for.

    ANSIBLE_CONNECTION_PLUGINS=tests/plugins/connection ansible-playbook site.yml --check -i INVENTORY

with, for the hosts of that inventory (group_vars, or `vars:` of `all`):

    ansible_connection: canned
    canned_recording: "{{ inventory_dir }}/../facts/ubuntu2404.json"     # or .../{{ inventory_hostname }}.json
    canned_node: bare        # or converged: every module says changed=false, node_state answers from the recording
    canned_log: calls.jsonl  # optional: every module call as a line of JSON, for tests of what was asked

A recording is a JSON document (tests/data/facts/README.md says how one is made):

    subsets        what `ansible_facts` holds; gathering more than that fails, as no real node's facts would be meant
    ansible_facts  as the setup module prints them
    modules        answers by module name. For node_state it is the whole node (packages, units, files, ...) of which
                   each query gets the part that it asks for; every other module's answer is given as it stands
    commands       answers of ansible.builtin.command and shell by the command's words, joined with blanks; * is any

Addresses of `fabric_ports` are taken from the host's variables when the node is converged, so that one recording
serves a thousand hosts. A module that neither the recording nor this file can answer fails and is named.
"""

from __future__ import annotations

import ast
import fcntl
import fnmatch
import functools
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = r"""
name: canned
short_description: Answer modules from a recording instead of a host
description:
  - For tests and for measurements of the controller. No host is reached, and no process is started.
options:
  recording:
    description: The node's recording, a JSON file.
    type: path
    required: true
    vars:
      - name: canned_recording
  node:
    description: Whether the node is freshly installed, or already as the roles want it.
    choices: [bare, converged]
    default: bare
    vars:
      - name: canned_node
  log:
    description: File that every module call is appended to, one JSON object a line (host, module, args).
    type: path
    vars:
      - name: canned_log
  host:
    description: The host's name in the inventory.
    vars:
      - name: inventory_hostname
  address:
    description: The address that the inventory reaches it by.
    vars:
      - name: ansible_host
  fabric_ports:
    description: The host's fabric ports; a converged node has their addresses.
    type: raw
    default: []
    vars:
      - name: fabric_ports
author: Elastic AI Toolkit
"""

Answer = dict[str, Any]
# Modules that only bring something about: on a bare node they would change something, on a converged one nothing.
CHANGING = frozenset({
    "apt", "apt_repository", "authorized_key", "blockinfile", "copy", "cron", "deb822_repository", "debconf",
    "dpkg_selections", "get_url", "git", "group", "hostname", "iptables", "known_hosts", "lineinfile", "managed_files",
    "package", "pip", "replace", "rpm_key", "service", "sysvinit", "unarchive", "user", "yum_repository",
})  # fmt: skip
# What an empty node_state answers to each option; the recording's part of the same name goes before it.
ABSENT: dict[str, Any] = {
    "packages": "",
    "units": {"active": False, "enabled": False},
    "contents": "",
    "links": {"exists": False, "mtu": 0, "txqueuelen": 0, "operstate": "absent", "addresses": [], "addresses6": []},
    "own_addresses": True,  # the one that the inventory reaches it by
    "sysctls": {"value": "", "settable": True},
    "modules": {"loaded": False, "version": "", "available": True},
    "users": False,
    "accounts": {},
}
# What node_state always answers, asked or not, unless the recording says otherwise.
ALWAYS: dict[str, Any] = {
    "cmdline": "",
    "in_container": False,
    "modules_loadable": True,
    "reboot_hints": [],
    "limits": {"memlock": 8388608, "nofile": 524288, "raisable": True},
    "cpus": 8,
    "package_lists": True,
}


@functools.lru_cache(maxsize=64)
def read_recording(path: str) -> dict[str, Any]:
    """A recording, read once per process."""
    try:
        data: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as fault:
        raise AnsibleConnectionFailure(f"canned: {path}: {fault}") from None
    unknown = set(data) - {"about", "subsets", "ansible_facts", "modules", "commands"}
    if unknown:
        raise AnsibleConnectionFailure(f"canned: {path}: unknown keys {', '.join(sorted(unknown))}")
    return data


def module_call(payload: bytes) -> tuple[str, dict[str, Any]]:
    """Short name and arguments of the module that a pipelined AnsiballZ payload would run."""

    def literal(key: bytes) -> str:
        start = payload.rfind(b"\n" + key + b"=")  # the call at the end has one argument a line, unindented
        if start < 0:
            raise AnsibleConnectionFailure(
                "canned: this is no Python module of ansible-core; only those are understood"
            )
        line = payload[start + len(key) + 2 : payload.index(b"\n", start + 1)]
        return str(ast.literal_eval(line.rstrip(b",").decode()))

    name = literal(b"module_fqn").rsplit(".", 1)[-1]
    return name, json.loads(literal(b"params"))["ANSIBLE_MODULE_ARGS"]


class Node:
    """One node's answers. `converged` nodes say that nothing is left to do."""

    def __init__(self, recording: dict[str, Any], converged: bool, name: str = "", ports: Any = ()) -> None:
        """A node as its recording describes it."""
        self.recording, self.converged, self.name = recording, converged, name
        self.ports = ports or []
        self.facts: dict[str, Any] = recording.get("ansible_facts", {})
        self.state: dict[str, Any] = recording.get("modules", {}).get("node_state", {})
        self.answers: dict[str, Callable[[dict[str, Any]], Answer]] = {
            "setup": self.setup,
            "node_preflight": self.node_preflight,
            "node_state": self.node_state,
            "package_set": self.package_set,
            "package_ledger": self.package_ledger,
            "dnf": self.dnf,
            "dnf_free": lambda _: {"changed": False, "waited_s": 0.0},
            "managed_files": self.managed_files,
            "kernel_values": self.kernel_values,
            "file": self.file,
            "stat": lambda _: {"changed": False, "stat": {"exists": False}},
            "find": lambda _: {"changed": False, "files": [], "matched": 0, "examined": 0, "skipped_paths": {}},
            "slurp": lambda args: {"failed": True, "msg": f"file not found: {args.get('src')}"},
            "tempfile": lambda _: {"changed": True, "path": "/tmp/ansible.canned"},
            "ping": lambda _: {"changed": False, "ping": "pong"},
            "wait_for": lambda _: {"changed": False},
            "command": self.command,
            "systemd_service": self.systemd,
            "systemd": self.systemd,
        }

    def answer(self, module: str, args: dict[str, Any]) -> Answer:
        """What the node answers to a module."""
        recorded = self.recording.get("modules", {})
        if module in recorded and module not in ("node_state", "node_preflight"):
            return dict(recorded[module])
        if module in self.answers:
            return self.answers[module](args)
        if module in CHANGING:
            return {"changed": not self.converged}
        return {
            "failed": True,
            "msg": f"canned: no answer for module {module}; put one under modules.{module} of the recording",
        }

    def setup(self, args: dict[str, Any]) -> Answer:
        """Facts, under the host's own name; what was not recorded can't be gathered."""
        subsets = args.get("gather_subset") or ["all"]
        names = subsets.split(",") if isinstance(subsets, str) else subsets
        asked = {name for name in names if not name.startswith("!")}
        missing = sorted(asked - set(self.recording.get("subsets", [])))
        if missing:
            return {"failed": True, "msg": f"canned: the recording holds no facts of subset {', '.join(missing)}"}
        own = {"ansible_hostname": self.name, "ansible_nodename": self.name} if self.name else {}
        return {"changed": False, "ansible_facts": {**self.facts, **own}}

    def node_preflight(self, args: dict[str, Any]) -> Answer:
        """As recorded, under the host's own name and with its fabric ports; the clock is the controller's."""
        recorded = self.recording.get("modules", {}).get("node_preflight")
        if recorded is None:
            return {"failed": True, "msg": "canned: the recording has no answer for module node_preflight"}
        ports: dict[str, list[str]] = {port["interface"]: [] for port in self.ports}
        clock = {"node_time_s": args.get("controller_time_s", 0.0), "offset_at_most_s": 0.0}
        own = {"hostname": self.name or recorded.get("hostname"), "links": {**ports, **recorded.get("links", {})}}
        return {"changed": False, "ipv6": [], **recorded, **clock, **own}

    def node_state(self, args: dict[str, Any]) -> Answer:
        """The part of the recorded node that was asked for; a bare node lacks what is not recorded."""
        asked = {key: value for key, value in args.items() if not key.startswith("_")}
        unknown = set(asked) - set(ABSENT) - {"files", "pci", "sysfs_root"}
        if unknown:
            return {"failed": True, "msg": f"canned: node_state has no option {', '.join(sorted(unknown))} here"}
        answer: Answer = {"changed": False}
        for option, absent in ABSENT.items():
            known, names = self.state.get(option, {}), asked.get(option) or []
            if option == "contents":
                names = [path for pattern in names for path in self._matching(known, pattern) or [pattern]]
                names = [path for path in names if not re.search(r"[*?\[]", path)]
            answer[option] = {name: known.get(name, absent) for name in names}
        answer["links"].update(self._links(answer["links"]))
        files = self.state.get("files", {})
        answer["files"] = {p: files[p] for pattern in asked.get("files") or [] for p in self._matching(files, pattern)}
        answer["missing_packages"] = [name for name, version in answer["packages"].items() if not version]
        answer["held"] = [name for name in self.state.get("held", []) if name in answer["packages"]]
        kernel = self.facts.get("ansible_kernel", "")
        for key, value in {**ALWAYS, "kernel": kernel, "kernels": [kernel]}.items():
            answer[key] = self.state.get(key, value)
        answer["pci"] = self.state.get("pci", []) if asked.get("pci") else []
        return answer

    @staticmethod
    def _matching(known: dict[str, Any], pattern: str) -> list[str]:
        return sorted(path for path in known if PurePosixPath(path).match(pattern))

    def _links(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The host's own fabric ports: cabled on a bare node, addressed too on a converged one."""
        own = {port["interface"]: [port["address"]] for port in self.ports if port["interface"] in asked}
        bare = {"exists": True, "operstate": "up", "txqueuelen": 1000, "mtu": 1500, "addresses": [], "addresses6": []}
        recorded = next(iter(self.state.get("links", {}).values()), {**bare, "mtu": 9000})
        return {name: {**recorded, "addresses": found} if self.converged else bare for name, found in own.items()}

    def package_set(self, args: dict[str, Any]) -> Answer:
        """A transaction: what is asked for and not recorded would be installed on a bare node."""
        there = self.state.get("packages", {})
        names = sorted(name for name in args.get("wanted") or {} if not there.get(name))
        if self.converged or args.get("state") == "absent":
            names = []
        done = [f"install {name}" for name in names]
        return {"changed": bool(names), "transaction": done, "manager": "apt", "kept": {}}

    def dnf(self, args: dict[str, Any]) -> Answer:
        """A transaction, in the words of ansible.builtin.dnf: what a bare node is asked for would be installed."""
        names = [] if self.converged or args.get("state") == "absent" else args.get("name") or []
        versioned = re.compile(r"-(\d+:)?\d[^-]*-[^-]+$")
        done = [f"Installed: {name if versioned.search(name) else name + '-1-1.el9'}.x86_64" for name in names]
        return {"changed": bool(done) or not self.converged, "results": done, "rc": 0, "msg": ""}

    def package_ledger(self, args: dict[str, Any]) -> Answer:
        """What dnf would do is what is to be done; nothing was remembered."""
        done = [line.replace("Installed: ", "install ") for line in args.get("results") or []]
        return {"changed": bool(done), "transaction": done, "packages": [], "restore": {}, "users": [], "groups": []}

    def managed_files(self, args: dict[str, Any]) -> Answer:
        """Files: all but the removals would change on a bare node."""
        entries = [*(args.get("directories") or []), *(args.get("files") or [])]
        paths = [] if self.converged else [e["path"] for e in entries if e.get("state") != "absent"]
        faults = [e["path"] for e in args.get("files") or [] if e.get("state") != "absent" and e.get("content") is None]
        if faults:
            return {"failed": True, "msg": f"{faults[0]}: content is required when state is present"}
        return {"changed": bool(paths), "changed_paths": paths, "diff": [], "ledger_stale": False}

    def kernel_values(self, args: dict[str, Any]) -> Answer:
        """A bare node's kernel holds other values."""
        paths = [] if self.converged else sorted(args.get("values") or {})
        return {"changed": bool(paths), "changed_paths": paths}

    def file(self, args: dict[str, Any]) -> Answer:
        """One path: nothing is there on a bare node."""
        changes = not self.converged and args.get("state") != "absent"
        return {"changed": changes, "path": args.get("path"), "dest": args.get("path")}

    def command(self, args: dict[str, Any]) -> Answer:
        """A recorded answer; in check mode the command module's own; else a failure, for nothing is known."""
        words = args.get("argv") or shlex.split(args.get("_raw_params") or args.get("cmd") or "")
        said = " ".join(str(word) for word in words)
        known = self.recording.get("commands", {})
        fits = said if said in known else next((p for p in known if "*" in p and fnmatch.fnmatchcase(said, p)), None)
        if fits is not None:
            out = {"rc": 0, "stdout": "", "stderr": "", **known[fits]}
            lines = {f"{key}_lines": out[key].splitlines() for key in ("stdout", "stderr")}
            return {"changed": True, "cmd": words, **out, **lines}
        if args.get("_ansible_check_mode"):
            answer: Answer = {"rc": 0, "cmd": words, "stdout": "", "stderr": "", "changed": False}
            if args.get("creates") or args.get("removes"):
                return {**answer, "changed": not self.converged}
            return {**answer, "skipped": True, "msg": "Command would have run if not in check mode"}
        return {"failed": True, "rc": 127, "msg": f"canned: no recorded answer to the command: {said}"}

    def systemd(self, args: dict[str, Any]) -> Answer:
        """A unit: refused, as systemd does, where it does not exist; unless masked or told to reload only."""
        name = args.get("name") or ""
        known = self.state.get("units", {})
        if self.converged or not name:
            return {"changed": False, "name": name, "status": {}}
        if name in known or f"{name}.service" in known:
            return {"changed": True, "name": name, "status": {}}
        if args.get("state") is None and args.get("enabled") is None:
            return {"changed": args.get("masked") is not None, "name": name, "status": {}}
        return {"failed": True, "msg": f"Could not find the requested service {name}: host"}


class Connection(ConnectionBase):
    """Answers instead of connecting."""

    transport = "canned"
    has_pipelining = True
    always_pipeline_modules = True
    has_tty = False

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def close(self) -> None:
        """Nothing is open."""
        self._connected = False

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """The answer of the module in `in_data`, or of the few shell commands that Ansible itself sends."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        if in_data is None:
            return self._shell_command(cmd)
        module, args = module_call(in_data)
        ports = self.get_option("fabric_ports")
        converged = self.get_option("node") == "converged"
        node = Node(read_recording(self.get_option("recording")), converged, self.get_option("host") or "", ports)
        answer = node.answer(module, args)
        look = module == "managed_files" and b".module_utils.reading" in in_data
        if not (look and answer.get("changed")):  # else the module itself is called next
            self._log(module, args)
        return int(bool(answer.get("failed"))), json.dumps(answer).encode(), b""

    def _log(self, module: str, args: dict[str, Any]) -> None:
        if not self.get_option("log"):
            return
        own = {key: value for key, value in args.items() if not key.startswith("_ansible")}
        line = json.dumps({"host": self.get_option("host"), "module": module, "args": own}) + "\n"
        with Path(self.get_option("log")).open("a", encoding="utf-8") as log:
            fcntl.flock(log, fcntl.LOCK_EX)  # hosts are processes of their own
            log.write(line)
            log.flush()

    def _shell_command(self, cmd: str) -> tuple[int, bytes, bytes]:
        made = re.search(r"echo (ansible-tmp-[\w.-]+)=", cmd)
        if made:
            return 0, f"{made[1]}=/root/.ansible/tmp/{made[1]}\n".encode(), b""
        if re.search(r"\becho ~\w*", cmd):
            return 0, b"/root\n", b""
        if re.search(r"\b(rm -f -r|chmod|chown|setfacl)\b", cmd):
            return 0, b"", b""
        return 127, b"", f"canned: no answer to the command: {cmd}".encode()

    def put_file(self, in_path: str, out_path: str) -> None:
        """Into nothing."""

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """There is nothing to fetch."""
        raise AnsibleConnectionFailure(f"canned: {in_path}: a canned node has no files")
