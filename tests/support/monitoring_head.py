"""Role monitoring in check mode on a head that exists as a recording."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
Entries = dict[str, dict[str, Any]]


def role(folder: Path, system: str = "ubuntu2404", **variables: Any) -> tuple[Entries, Entries, str]:
    """The role's files and folders, by path, and what the run printed at its most talkative."""
    recording = json.loads((ROOT / f"tests/data/facts/os/{system}.json").read_text("utf-8"))
    state = recording.setdefault("modules", {}).setdefault("node_state", {})
    state.setdefault("files", {})["/opt/toolkit"] = "file"
    recording.setdefault("commands", {})["systemd-analyze calendar *"] = {"rc": 0, "changed": False, "stdout": ""}
    (folder / "node.json").write_text(json.dumps(recording))
    common = {
        "ansible_connection": "canned",
        "ansible_host": "192.0.2.11",
        "canned_recording": str(folder / "node.json"),
    }
    common |= {"canned_log": str(folder / "log"), "monitoring_revalidate_toolkit": "/opt/toolkit", **variables}
    hosts = folder / "hosts.yml"
    hosts.write_text(yaml.safe_dump({"all": {"vars": common, "children": {"heads": {"hosts": {"node1": {}}}}}}))
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "HOME": str(folder)}
    environment["ANSIBLE_CONNECTION_PLUGINS"] = str(ROOT / "tests/plugins/connection")
    command = ["ansible-playbook", "-vvv", "-i", str(hosts), "--check", "playbooks/monitoring.yml"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    calls = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    wanted = [call["args"] for call in calls if call["module"] == "managed_files"]
    files, folders = (
        {entry["path"]: entry for one in wanted for entry in one.get(key) or []} for key in ("files", "directories")
    )
    return files, folders, done.stdout
