#!/usr/bin/python3
"""Wait until nobody else holds dnf's locks: Ansible's own module would wait without end and say nothing."""

from __future__ import annotations

import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: dnf_free
short_description: Wait for dnf's locks, for a limited time
version_added: 0.1.0
description:
  - C(ansible.builtin.dnf) has no time limit of its own; it waits for ever while another dnf holds a lock.
  - Fails with lock, process and command when the time is over. Changes nothing.
options:
  lock_timeout_s: {description: how long to wait, type: int, default: 300}
  locks: {description: dnf's files of locks, type: list, elements: path, default: [/var/cache/dnf/download_lock.pid,
    /var/cache/dnf/metadata_lock.pid, /var/lib/dnf/rpmdb_lock.pid]}
author: Elastic AI Toolkit
"""
EXAMPLES = r"""
- name: Wait for other package managers
  elastic_ai.toolkit.dnf_free:
    lock_timeout_s: 300
"""
RETURN = r"""
waited_s: {description: how long it took, returned: always, type: float}
"""

# Where dnf 4 keeps them for root (dnf/lock.py); each holds the number of the process, and goes with it.
LOCKS = ["/var/cache/dnf/download_lock.pid", "/var/cache/dnf/metadata_lock.pid", "/var/lib/dnf/rpmdb_lock.pid"]


def holder(locks: list[str], proc: Path = Path("/proc")) -> str:
    """Which lock is held and by whom, "" when all are free. A file of a process that ended is free, as dnf sees it."""
    for lock in locks:
        try:
            process = int(Path(lock).read_text(encoding="ascii"))
            command = (proc / str(process) / "cmdline").read_bytes()
        except (OSError, ValueError):
            continue
        words = command.replace(b"\0", b" ").decode(errors="replace").strip()
        return f"{lock} is held by process {process} ({words or 'its command is not known'})"
    return ""


def main() -> None:
    """Wait, or fail."""
    module = AnsibleModule(
        argument_spec={
            "lock_timeout_s": {"type": "int", "default": 300},
            "locks": {"type": "list", "elements": "path", "default": LOCKS},
        },
        supports_check_mode=True,
    )
    began, limit_s = time.monotonic(), module.params["lock_timeout_s"]
    while True:
        found = holder(module.params["locks"])
        if not found:
            module.exit_json(changed=False, waited_s=round(time.monotonic() - began, 1))
        if time.monotonic() - began >= limit_s:
            module.fail_json(
                msg=f"another package manager is at work: {found}; waited {limit_s} s (packages_lock_timeout_s)."
                " Nothing was changed; run again when it has ended, or end it if it hangs"
            )
        time.sleep(1)


if __name__ == "__main__":
    main()
