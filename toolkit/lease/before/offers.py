"""What a GPU server has for programs of its users: its own Python, commands, folders of other machines, images.

The server finds it (module survey), role remoting_client writes it into pool.json of every machine of the pool, and
`toolkit run` and `toolkit images` read it there. Only what all users of the server may use is in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from toolkit.lease.fields import DamagedDocument

#: The standard library of the server's Python is not in its modules.
MOST_NAMES, MOST_IMAGES, MOST_CHARACTERS = 20_000, 100, 400


@dataclass(frozen=True)
class PythonThere:
    """A `python3`. version: 3.11.2. modules: what it imports beyond the standard library. names: of commands that are
    this one. torch, tensorflow: their versions, "" for none; torch_cuda, tensorflow_cuda: of the CUDA that each was
    built for, "" where it uses no GPU."""

    version: str
    modules: tuple[str, ...] = ()
    names: tuple[str, ...] = ("python3",)
    torch: str = ""
    torch_cuda: str = ""
    tensorflow: str = ""
    tensorflow_cuda: str = ""


@dataclass(frozen=True)
class ImageThere:
    """An image of containers. names: by which users ask for it. cuda: version that it has, "" for none. python: None
    where it has none, or could not be looked at. commands: programs on its path; empty where that is not known."""

    names: tuple[str, ...]
    identity: str
    size_bytes: int = 0
    cuda: str = ""
    python: PythonThere | None = None
    commands: tuple[str, ...] = ()

    @property
    def gpu_frameworks(self) -> bool:
        """Whether a framework in it uses GPUs."""
        return self.python is not None and bool(self.python.torch_cuda or self.python.tensorflow_cuda)


@dataclass(frozen=True)
class Offers:
    """python, commands: of the usual search path; bins: further folders of programs, not looked into. mounts: folder ->
    where its files are (nfs4 server:/path), of network file systems alone."""

    python: PythonThere | None = None
    commands: tuple[str, ...] = ()
    bins: tuple[str, ...] = ()
    mounts: Mapping[str, str] | None = None
    images: tuple[ImageThere, ...] = ()

    def text(self) -> str:
        """As written in pool.json."""
        return json.dumps(asdict(self) | {"mounts": dict(self.mounts or {})})

    def image(self, name: str) -> ImageThere | None:
        """The image of that name or identity, None where this server has none."""
        wanted = {name, f"{name}:latest"}
        return next((one for one in self.images if one.identity == name or wanted & set(one.names)), None)


def is_text(value: object) -> bool:
    """Whether it can be a name or a version in pool.json."""
    return isinstance(value, str) and len(value) <= MOST_CHARACTERS and value.isprintable()


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key, "")
    if not is_text(value):
        raise DamagedDocument(f"{key} is {ascii(value)[:40]}")
    return str(value)


def _texts(value: object, key: str) -> tuple[str, ...]:
    """Without those that are no names: one of them does not make the others useless."""
    if not isinstance(value, (list, tuple)) or len(value) > MOST_NAMES:
        raise DamagedDocument(f"{key} is no list of names")
    return tuple(one for one in value if is_text(one))


def _commands(value: object) -> tuple[str, ...]:
    """Empty, that is not known, where there are too many."""
    return () if isinstance(value, list) and len(value) > MOST_NAMES else _texts(value, "commands")


def _object(value: object, key: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise DamagedDocument(f"{key} is no object")
    return value


def parse_python(value: object) -> PythonThere | None:
    """Of a document; DamagedDocument where it is none."""
    if value is None:
        return None
    data = _object(value, "python")
    names = ("version", "torch", "torch_cuda", "tensorflow", "tensorflow_cuda")
    modules, known_by = _texts(data.get("modules", []), "modules"), _texts(data.get("names", ["python3"]), "names")
    return PythonThere(modules=modules, names=known_by, **{name: _text(data, name) for name in names})


def _python_or_none(value: object) -> PythonThere | None:
    """As the survey has it: None for one that could not be looked at."""
    try:
        return parse_python(value)
    except DamagedDocument:
        return None


def _image(value: object) -> ImageThere | None:
    """None for one that nobody could ask for, or that is damaged."""
    try:
        data = _object(value, "images")
        size, names, identity = (
            data.get("size_bytes", 0),
            _texts(data.get("names", []), "names"),
            _text(data, "identity"),
        )
        cuda, commands = _text(data, "cuda"), _commands(data.get("commands", []))
    except DamagedDocument:
        return None
    if isinstance(size, bool) or not isinstance(size, int) or size < 0 or not names or not identity:
        return None
    return ImageThere(names, identity, size, cuda, _python_or_none(data.get("python")), commands)


def parse_offers(value: object) -> Offers | None:
    """Of pool.json; None where the server was not surveyed. DamagedDocument where it is no survey at all; of one with
    an entry that is damaged the others count, for users of the server may have made that entry."""
    if value is None:
        return None
    data = _object(value, "offers")
    mounts = _object(data.get("mounts", {}), "mounts")
    images: Sequence[object] = data.get("images", [])
    if not isinstance(images, list):
        raise DamagedDocument("images is no list of images")
    return Offers(
        python=_python_or_none(data.get("python")),
        commands=_commands(data.get("commands", [])),
        bins=_texts(data.get("bins", []), "bins"),
        mounts={path: where for path, where in mounts.items() if is_text(path) and is_text(where)},
        images=tuple(found for one in images[:MOST_IMAGES] if (found := _image(one))),
    )
