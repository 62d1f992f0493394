"""Which packages of a role are not as the role wants them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError


def packages_off(state: Mapping[str, Any], wanted: Mapping[str, Any] | Iterable[str]) -> list[str]:
    """Names that are missing, of another version than the pinned one, or pinned and not on hold.

    state is a result of node_state that was asked for these packages. wanted maps names to a version, "" for any; a
    list means any version of each.
    """
    pins = wanted if isinstance(wanted, Mapping) else dict.fromkeys(wanted, "")
    unasked = [name for name in pins if name not in state["packages"]]
    if unasked:
        raise AnsibleFilterError(f"packages_off: node_state was not asked for {', '.join(unasked)}")
    off = []
    for name, version in pins.items():
        installed = state["packages"][name]
        if not installed or (version and (installed != str(version) or name not in state["held"])):
            off.append(name)
    return off
