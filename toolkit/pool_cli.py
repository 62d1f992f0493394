"""`toolkit` on machines of the pool: the commands that use GPUs, and nothing that provisions."""

from __future__ import annotations

import click

from toolkit.commands.attach import attach
from toolkit.commands.gpus import gpus
from toolkit.commands.images import images
from toolkit.commands.jupyter import jupyter
from toolkit.commands.lease import lease
from toolkit.commands.logs import logs
from toolkit.commands.run import run
from toolkit.commands.ssh import ssh
from toolkit.entry import ToolkitGroup, start


@click.group(cls=ToolkitGroup)
def cli() -> None:
    """Use the pool's GPUs from this machine.

    \b
    toolkit run train.py                               a program with one GPU
    toolkit gpus                                       what there is, and who has it
    toolkit images                                     what programs can run in
    toolkit run --gpus 2 --part 0.5 -- python x.py     two halves for one program
    toolkit lease request --gpus 4 --time 2h           GPUs for longer
    """


for command in (gpus, run, logs, attach, ssh, images, jupyter, lease):
    cli.add_command(command)


def main() -> None:
    """Entry point."""
    start(cli)
