"""Options that several commands have, each with one name, one default and one help text."""

from __future__ import annotations

from pathlib import Path

import click

from toolkit.lab.spec import LAB
from toolkit.lab_inventory import lab_inventory

inventory_option = click.option(
    "-i",
    "--inventory",
    type=click.Path(path_type=Path),
    default=lab_inventory,
    show_default=str(LAB),
    help="Ansible inventory, folder or file.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
runs_dir_option = click.option(
    "--runs-dir", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Folder of the runs."
)
