"""ansible-playbook over several inventories at once: one process loads Ansible and forks one run for each of them.

Two things are done once that Ansible does again and again, and together were half of what such runs cost: the variables
files of a play are kept (Ansible reads those of `vars_files` anew for every task), and a module that one run has packed
is there for the others. What the runs do is what ansible-playbook does.

    python playbooks.py INVENTORY:OUTPUT... -- ARGUMENTS OF ansible-playbook
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any


def keep_files() -> None:
    """Every file of variables is parsed once per run."""
    from ansible.parsing.dataloader import DataLoader

    load = DataLoader.load_from_file

    def load_and_keep(self: DataLoader, file_name: str, cache: str = "all", *rest: Any, **options: Any) -> Any:
        return load(self, file_name, "all" if cache == "vaulted" else cache, *rest, **options)

    DataLoader.load_from_file = load_and_keep  # type: ignore[method-assign]


def run(inventory: str, output: str, arguments: list[str]) -> int:
    """Starts one run; its process id."""
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        from ansible.cli.playbook import PlaybookCLI

        try:
            PlaybookCLI.cli_executor(["ansible-playbook", *arguments, "-i", inventory])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)  # without clearing Ansible's temporary folder away, which is that of the other runs too


def main() -> None:
    """Runs all, waits for all; what they end with is in their output."""
    split = sys.argv.index("--")
    import ansible.cli.playbook
    import ansible.executor.playbook_executor  # noqa: F401

    keep_files()
    children = [run(*pair.split(":"), sys.argv[split + 1 :]) for pair in sys.argv[1:split]]
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    sys.path.remove(str(Path(__file__).parent))
    main()
