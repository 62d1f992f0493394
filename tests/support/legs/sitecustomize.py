"""On PYTHONPATH: every Python finds the network interfaces that LEGS names (comma separated), which this machine lacks.

So a process of its own, as Ansible is, sees labs as up whose folders a test has made.
"""

from __future__ import annotations

import os
import socket

_real = socket.if_nametoindex
_legs = os.environ.get("LEGS", "").split(",")


def _found(name: str) -> int:
    return 1 if name in _legs else _real(name)


socket.if_nametoindex = _found  # type: ignore[assignment]
