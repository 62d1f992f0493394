"""A lab's head is lost, with all that was on it, and another machine of its name and address takes its place."""

from __future__ import annotations

from toolkit.lab import lab as labs
from toolkit.lab import nodes
from toolkit.lab.devices import emulation
from toolkit.lab.host import detect
from toolkit.lab.image import base_image
from toolkit.lab.sources import os_key, release_for


def lost(name: str, head: str = "head") -> None:
    """No power, and no disk any more."""
    spec = labs.load(name)
    nodes.stop(name, [head], detect(), grace_s=0)
    nodes.discard(spec.node_dir(spec.node(head)))


def made_new(name: str, head: str = "head") -> None:
    """A machine with nothing but its system; returns when it answers ssh."""
    spec = labs.load(name)
    node, release = spec.node(head), release_for(os_key(spec.os))
    image = base_image(release, print)
    public = (spec.dir / "id_ed25519.pub").read_text()
    nodes.prepare(spec, node, image, public, emulation(image, release.title, print))
    labs.boot(spec, node, print)
