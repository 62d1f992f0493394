"""`toolkit images`: the images in which programs of users can run on the pool's servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from toolkit import answers
from toolkit.command_class import command
from toolkit.commands.lease_shared import head_options, on_head
from toolkit.lease.before.folder import size_words
from toolkit.lease.before.offers import ImageThere
from toolkit.lease.display import table
from toolkit.lease.machine.host import this_host
from toolkit.lease.pool_file import PoolDescription, read_pool


@dataclass(frozen=True)
class Listed:
    """An image and the servers that have it."""

    image: ImageThere
    servers: tuple[str, ...]
    default: bool


def listed(pool: PoolDescription) -> list[Listed]:
    """The images of all servers, each once; the default one first, then by name."""
    found: dict[str, ImageThere] = {}
    servers: dict[str, list[str]] = {}
    for name, server in sorted(pool.servers.items()):
        for image in server.offers.images if server.offers else ():
            found.setdefault(image.identity, image)
            servers.setdefault(image.identity, []).append(name)
    names = {pool.default_image, f"{pool.default_image}:latest"} - {"", ":latest"}
    rows = [
        Listed(image, tuple(servers[identity]), bool(names & set(image.names)) or identity == pool.default_image)
        for identity, image in found.items()
    ]
    return sorted(rows, key=lambda one: (not one.default, one.image.names))


def _data(one: Listed) -> dict[str, Any]:
    python = one.image.python
    return {
        "names": list(one.image.names),
        "identity": one.image.identity,
        "default": one.default,
        "servers": list(one.servers),
        "size_bytes": one.image.size_bytes,
        "cuda": one.image.cuda or None,
        "python": python.version if python else None,
        "frameworks": _frameworks(one.image),
    }


def _frameworks(image: ImageThere) -> dict[str, dict[str, str | None]]:
    python = image.python
    known: Mapping[str, tuple[str, str]] = (
        {"torch": (python.torch, python.torch_cuda), "tensorflow": (python.tensorflow, python.tensorflow_cuda)}
        if python
        else {}
    )
    return {name: {"version": version, "cuda": cuda or None} for name, (version, cuda) in known.items() if version}


def _row(one: Listed) -> list[str]:
    has = ", ".join(
        f"{name} {of['version']}{'' if of['cuda'] else ' (no GPU)'}" for name, of in _frameworks(one.image).items()
    )
    name = one.image.names[0].removesuffix(":latest")
    size = size_words(one.image.size_bytes)
    return [
        name,
        has or "-",
        one.image.cuda or "-",
        ", ".join(one.servers),
        size + ("  (default)" if one.default else ""),
    ]


@command()
@head_options
@answers.json_option
def images(inventory: Path | None, as_json: bool) -> None:
    """List the images that programs can run in.

    They are containers on the pool's servers, as the last run of site.yml found them. `toolkit run --image NAME`
    runs a program in one; the default image is taken by itself where a server lacks what a program imports.

    \b
    toolkit images                      on any machine of the pool
    toolkit images -i inventories/SITE  from elsewhere, by way of the head
    toolkit images --json | jq '.images[] | select(.frameworks.torch)'
    """
    if on_head(inventory, ["images", *(["--json"] if as_json else [])]):
        return
    pool = read_pool(this_host().pool_conf)
    found = listed(pool)
    if as_json:
        answers.say("images", {"images": [_data(one) for one in found]})
        return
    if not found:
        surveyed = any(server.offers for server in pool.servers.values())
        none = "The servers have no images." if surveyed else "This machine has no record of the servers' images."
        click.echo(f"{none} The administrator brings them by site.yml (remoting_server_images).")
        return
    click.echo(table(("NAME", "FRAMEWORKS", "CUDA", "SERVERS", "SIZE"), [_row(one) for one in found]))
