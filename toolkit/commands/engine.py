"""`toolkit engine`: archives of remoting engines."""

from __future__ import annotations

import platform
from dataclasses import asdict
from pathlib import Path

import click

from toolkit import answers
from toolkit.command_class import group
from toolkit.commands.options import json_option
from toolkit.engine import build as builder
from toolkit.engine import pack as packer
from toolkit.engine import tensorflow_build as tensorflow_builder
from toolkit.engine import torch_build as torch_builder
from toolkit.engine import torch_releases
from toolkit.errors import LabError


@group()
def engine() -> None:
    """Build the engine for GPUs over the network.

    `build` makes the toolkit's own engines. `reference`: memory, copies and kernels by the CUDA driver API, for labs,
    CI and calibration; it has no CUDA runtime. `torch`: PyTorch programs, by PyTorch's own operators. `tensorflow`:
    TensorFlow programs, by TensorFlow's own distributed runtime. `pack` makes an archive from the files that an
    engine's publisher released. The roles install them.

    \b
    toolkit engine build
    toolkit engine build torch --torch ~/venv/bin/python
    toolkit engine build tensorflow
    toolkit engine pack lupine --from lupine-1.0.0.zip
    """


@engine.command()
@click.argument(
    "name", type=click.Choice(["reference", "torch", "tensorflow"]), metavar="[ENGINE]", default="reference"
)
@click.option(
    "--out",
    "--output",
    "output",
    type=click.Path(path_type=Path),
    help="Write into this file, or (torch) into this folder where it does not end in .tar.gz."
    "  [default: elastic-ai-ENGINE-RELEASE.tar.gz here]",
)
@click.option("--release", help="Give the release this name.  [default: the toolkit's version and the sources' hash]")
@click.option(
    "--torch",
    "torches",
    multiple=True,
    metavar="PYTHON",
    help="Compile torch against the PyTorch of this Python; once for each minor release that users have.",
)
@click.option(
    "--all", "every", is_flag=True, help="Compile torch against its last three releases, from the package index."
)
@json_option
def build(
    name: str, output: Path | None, release: str | None, torches: tuple[str, ...], every: bool, as_json: bool
) -> None:
    """Build an engine from the toolkit's sources with this machine's gcc: reference (the default), torch or tensorflow.

    Prints path and sha256, which the inventory gives to the roles as remoting_engine_artifact and
    remoting_engine_sha256. A client and a server of the reference engine talk only when both are of the same release.

    \b
    toolkit engine build --out /srv/engine.tar.gz
    toolkit engine build torch --torch ~/venv/bin/python --out /srv/engine-torch.tar.gz
    toolkit engine build torch --all

    torch sends the operators of PyTorch programs. It needs g++ and, for each minor release of PyTorch that users'
    programs have, a Python with that release (its ordinary wheel, for processors or for GPUs). tensorflow needs no
    TensorFlow to be built.
    """
    if every and torches:
        raise click.UsageError("--all and --torch both say what is built against; give one of them")
    if (name == "torch") != (every or bool(torches)):
        needs = "give --torch PYTHON, a Python that has PyTorch, or --all"
        raise click.UsageError(needs if name == "torch" else "--torch and --all are for the engine torch")
    try:
        if name == "torch":
            torches = tuple(torch_releases.pythons()) if every else torches
            made = _build_torch(output, release, torches)
        elif name == "tensorflow":
            chosen = release or tensorflow_builder.default_release()
            packed = tensorflow_builder.build_archive(output or Path(f"elastic-ai-tensorflow-{chosen}.tar.gz"), chosen)
            made = torch_builder.Made(packed.path, packed.sha256, packed.info)
        else:
            chosen = release or builder.default_release()
            built = builder.build_engine(output or Path(f"elastic-ai-reference-{chosen}.tar.gz"), chosen)
            made = torch_builder.Made(built.path, built.sha256, built.info)
    except OSError as e:
        raise LabError(str(e)) from e
    if as_json:
        answers.say("engine", {"path": str(made.path.absolute()), "sha256": made.sha256, **asdict(made.info)})
        return
    click.echo(f"path: {made.path.absolute()}")
    if made.sha256:
        click.echo(f"sha256: {made.sha256}")
    click.echo(f"release: {made.info.release}, for {made.info.machine} with glibc {made.info.glibc} or newer")
    if isinstance(made.info, torch_builder.TorchInfo):
        click.echo(f"PyTorch: {', '.join(made.info.torch)}")
    if isinstance(made.info, tensorflow_builder.TensorflowInfo):
        click.echo(f"TensorFlow: {', '.join(made.info.tensorflow)}")


def _build_torch(output: Path | None, release: str | None, pythons: tuple[str, ...]) -> torch_builder.Made:
    """The engine torch for the PyTorch of each of these, in a folder or an archive."""
    torches = [torch_builder.ask(python) for python in pythons]
    chosen = release or torch_builder.default_release()
    target = output or Path(f"elastic-ai-torch-{chosen}.tar.gz")
    if target.name.endswith(".tar.gz"):
        return torch_builder.build_archive(target, torches, chosen)
    return torch_builder.Made(target, "", torch_builder.build_folder(target, torches, chosen))


@engine.command()
@click.argument("name", type=click.Choice(["lupine"]), metavar="ENGINE")
@click.option(
    "--from",
    "sources",
    type=click.Path(path_type=Path),
    multiple=True,
    required=True,
    help="Take this file of the release (zip or wheel), or folder with its files (an unpacked image); once for each.",
)
@click.option("--release", help="Name the release, as 1.0.0, where the files do not say it.")
@click.option(
    "--cuda", help="Name the CUDA version that the files are built for, as 13.0, where their names do not say it."
)
@click.option(
    "--out",
    "--output",
    "output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write into this file.  [default: lupine-RELEASE-cudaCUDA.tar.gz here]",
)
@json_option
def pack(
    name: str, sources: tuple[Path, ...], release: str | None, cuda: str | None, output: Path | None, as_json: bool
) -> None:
    """Make the archive of an engine from its publisher's own release files. Nothing of it is built here.

    \b
    toolkit engine pack lupine --release 1.0.0 \\
      --from lupine-server-cuda-12.4.1-ubuntu22.04-x86_64.zip \\
      --from lupine-client-cuda-12.4.1-ubuntu22.04-x86_64.zip

    What servers and clients need (glibc, libraries, CUDA) is read from the files and kept in the archive: a node that
    has not got it is refused by preflight, before anything is installed. Needs gcc, for the gate that asks each
    connection for its lease's token.
    """
    seen = packer.look(sources)
    try:
        made = packer.pack(seen, output, release, cuda, platform.machine())
    except OSError as e:
        raise LabError(str(e)) from e
    about = made.about
    if as_json:
        answers.say("engine-pack", {"path": str(made.path.absolute()), **about, "sha256": made.sha256})
        return
    click.echo(f"path: {made.path.absolute()}\nsha256: {made.sha256}")
    click.echo(f"release: {about['release']} of {name}, for {about['machine']}")
    for part in ("server", "client"):
        click.echo(f"{part}: needs glibc {about[part]['glibc']}, {', '.join(about[part]['libraries'])}")
    click.echo(f"server: needs a driver of CUDA {about['cuda']} or newer")
