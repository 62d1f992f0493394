"""A recorded node that can be rebooted and keeps the files that roles wrote: for plays of Ansible out of check mode.

Modules are answered as by the connection `canned`. Besides: `managed_files` keeps its files, a reboot counts one start
in the file `starts` and empties /run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ansible.plugins.connection import ConnectionBase
from ansible.plugins.loader import connection_loader

DOCUMENTATION = r"""
name: started
short_description: A recorded node that can be rebooted
description:
  - For tests. No host is reached.
options:
  recording:
    description: The node's recording, a JSON file.
    type: path
    required: true
    vars:
      - name: canned_recording
  starts:
    description: File with a line for each start of the node.
    type: path
    required: true
    vars:
      - name: started_starts
  host:
    description: The host's name in the inventory.
    vars:
      - name: inventory_hostname
author: Elastic AI Toolkit
"""
SHUTDOWN = "/sbin/shutdown"
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Connection(ConnectionBase):
    """Answers instead of connecting."""

    transport = "started"
    has_pipelining = True
    always_pipeline_modules = True
    has_tty = False

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def close(self) -> None:
        """Nothing is open."""
        self._connected = False

    def reset(self) -> None:
        """Nothing is open."""

    @property
    def _starts(self) -> Path:
        return Path(self.get_option("starts"))

    def _files(self) -> dict[str, str]:
        kept = self._starts.with_suffix(".files")
        found: dict[str, str] = json.loads(kept.read_text()) if kept.is_file() else {}
        return found

    def _write(self, files: dict[str, str]) -> None:
        self._starts.with_suffix(".files").write_text(json.dumps(files))

    def _boot_id(self) -> str:
        return f"{self.get_option('host')}-{len(self._starts.read_text().splitlines())}"

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        """The answer of the module in `in_data`, or of the shell commands that Ansible itself sends."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        if in_data is None:
            return self._shell_command(cmd)
        canned: Any = connection_loader.get("canned", class_only=True)
        there = __import__(canned.__module__, fromlist=["Node"])
        module, args = there.module_call(in_data)
        look = module == "managed_files" and b".module_utils.reading" in in_data
        recording = json.loads(Path(self.get_option("recording")).read_text())
        answer = self._managed(args, look) if module == "managed_files" else None
        if answer is None:
            state = recording.setdefault("modules", {}).setdefault("node_state", {})
            state["contents"] = {**state.get("contents", {}), **self._files(), BOOT_ID: self._boot_id()}
            recording["modules"]["find"] = {"changed": False, "files": [{"path": SHUTDOWN}]}
            answer = there.Node(recording, False, self.get_option("host")).answer(module, args)
        return int(bool(answer.get("failed"))), json.dumps(answer).encode(), b""

    def _managed(self, args: dict[str, Any], look: bool) -> dict[str, Any]:
        before = self._files()
        after = dict(before)
        for entry in args.get("files") or []:
            if entry.get("state", "present") == "present":
                after[entry["path"]] = entry["content"]
            else:
                after.pop(entry["path"], None)
        if not look and not args.get("_ansible_check_mode"):
            self._write(after)
        paths = sorted({*before, *after} - {path for path in before if before[path] == after.get(path)})
        return {"changed": bool(paths), "changed_paths": paths, "diff": [], "ledger_stale": False}

    def _shell_command(self, cmd: str) -> tuple[int, bytes, bytes]:
        if SHUTDOWN in cmd:
            with self._starts.open("a") as file:
                file.write("started\n")
            self._write({path: text for path, text in self._files().items() if not path.startswith("/run/")})
            return 0, b"", b""
        if BOOT_ID in cmd:
            return 0, self._boot_id().encode(), b""
        if re.search(r"\bwhoami\b", cmd):
            return 0, b"root\n", b""
        if re.search(r"\becho ~\w*", cmd):
            return 0, b"/root\n", b""
        made = re.search(r"echo (ansible-tmp-[\w.-]+)=", cmd)
        if made:
            return 0, f"{made[1]}=/root/.ansible/tmp/{made[1]}\n".encode(), b""
        if re.search(r"\b(rm -f -r|chmod|chown|setfacl)\b", cmd):
            return 0, b"", b""
        return 127, b"", f"started: no answer to the command: {cmd}".encode()

    def put_file(self, in_path: str, out_path: str) -> None:
        """Into nothing."""

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Nothing is there."""
