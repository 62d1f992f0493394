"""`toolkit engine`: the reference engine's artefact."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from toolkit.commands.options import json_option
from toolkit.engine import build as builder
from toolkit.errors import LabError


@click.group()
def engine() -> None:
    """The reference engine: memory and copies of remote GPUs, for labs, CI and calibration.

    It runs no kernels and is not for production; the roles install it like any other engine.
    """


@engine.command()
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write it (default: elastic-ai-reference-RELEASE.tar.gz here).",
)
@click.option("--release", help="Name of the release (default: the toolkit's version and the sources' hash).")
@json_option
def build(output: Path | None, release: str | None, as_json: bool) -> None:
    """Build the artefact from the toolkit's C sources with this machine's gcc.

    \b
    Prints its path and sha256, which the roles want as
      remoting_engine_artifact and remoting_engine_sha256
    A client and a server talk only when both are of the same release.
    """
    chosen = release or builder.default_release()
    target = output or Path(f"elastic-ai-reference-{chosen}.tar.gz")
    try:
        made = builder.build_engine(target, chosen)
    except OSError as e:
        raise LabError(str(e)) from e
    if as_json:
        click.echo(json.dumps({"path": str(made.path.absolute()), "sha256": made.sha256, **asdict(made.info)}))
        return
    click.echo(f"path: {made.path.absolute()}\nsha256: {made.sha256}")
    click.echo(f"release: {made.info.release}, for {made.info.machine} with glibc {made.info.glibc} or newer")
