"""Packages, their repositories and the keys of these, and the container engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils.late import filters_of

#: Module of plugin_utils -> those of its functions that are filters; NAME.yml beside this file documents each.
CODE = {
    "docker": ("docker_packages", "docker_daemon", "docker_daemon_differs"),
    "mirror": ("mirror_needs", "mirror_observed"),
    "needs": ("package_needs", "packages_missing"),
    "openpgp": ("openpgp_keys", "openpgp_trusted", "openpgp_armour", "openpgp_files"),
    "packages": ("packages_off",),
    "repos": (
        "repos_plan",
        "repos_paths",
        "repos_files",
        "repos_lists",
        "repos_unread",
        "repos_key_faults",
        "repos_read_of",
        "repos_before",
        "repos_refusal",
        "repos_keys_there",
        "repos_undeclared",
        "repos_tls_faults",
        "repos_from_faults",
    ),
    "sources": ("repos_superseded",),
}


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Filters by name."""
        return filters_of(CODE)
