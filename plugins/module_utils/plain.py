"""Commands whose words are read speak English, whatever language the node is set to.

A node's LANG comes to modules by sudo and pam_env. LC_ALL alone is not enough: in C.UTF-8 messages still follow
LANGUAGE, which Debian's installer writes beside it; in C they do not. Runs on nodes: Python 3.9, standard library.
"""

from __future__ import annotations

from typing import TypeVar

PLAIN = {"LC_ALL": "C", "LANGUAGE": ""}
Module = TypeVar("Module")


def plain(module: Module) -> Module:
    """The module, whose commands run in the C locale from here on."""
    module.run_command_environ_update = PLAIN  # type: ignore[attr-defined]
    return module
