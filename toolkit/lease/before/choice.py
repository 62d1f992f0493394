"""How a program runs on the GPU server: in which image or none, in which folder, on which servers, or why on none.

By what the servers were found to have (module offers) and before anything is requested, so that a refusal takes no GPU
and waits for none.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from toolkit.lease import LeaseError
from toolkit.lease.before import survey
from toolkit.lease.before.folder import FolderCopy, measure
from toolkit.lease.before.imports import absent, certain_imports
from toolkit.lease.before.mounts import is_shared
from toolkit.lease.before.offers import ImageThere, Offers, PythonThere
from toolkit.lease.before.program_imports import Import
from toolkit.lease.before.program_words import PythonProgram, program_of, unwrapped
from toolkit.lease.before.sees import FRAMEWORKS
from toolkit.lease.before.words import PYTHON
from toolkit.lease.pool_file import PoolServer

#: What says that processors are enough.
CPU_OK = "--cpu-ok"


@dataclass(frozen=True)
class Asked:
    """A program and what its user said of it. own_folder: it runs in this one, or a copy; copied: its user named it.
    torch: it imports PyTorch; tensorflow: TensorFlow. cpu_ok: it may run without a GPU."""

    program: tuple[str, ...]
    image: str = ""
    own_folder: bool = True
    copied: bool = False
    torch: bool = False
    tensorflow: bool = False
    cpu_ok: bool = False

    @cached_property
    def python(self) -> PythonProgram | None:
        """The Python program that it is, as far as it can be read here."""
        return program_of(self.program) if self.own_folder else None

    @cached_property
    def imports(self) -> list[Import]:
        """What it certainly imports. Of an environment's manager nothing is known."""
        return certain_imports(self.python) if self.python and not unwrapped(self.program)[1] else []


@dataclass(frozen=True)
class Choice:
    """servers: those that can run it, all where nothing is known. image: "" for none; identity: by which all know
    it, "" where they are to be asked. copy: of this folder, None where
    it is there or another one was named. lines: what was decided, for its user. framework: that which is known to see
    the GPUs, "" where nobody knows."""

    program: tuple[str, ...]
    servers: tuple[str, ...]
    image: str = ""
    identity: str = ""
    copy: FolderCopy | None = None
    lines: tuple[str, ...] = ()
    framework: str = ""


@dataclass(frozen=True)
class Fault:
    """Why a place cannot run the program. gpu: it could, without a GPU. folder: the program's file is elsewhere."""

    why: str
    gpu: bool = False
    folder: bool = False


def _listed(words: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(words))


def _folder_of(word: str) -> str:
    """Where a word of the command line is a program here, "" for nowhere."""
    found = shutil.which(word)
    return str(Path(found).parent) if found else ""


def _at_home(folder: str) -> bool:
    return Path.home() in (Path(folder), *Path(folder).parents)


def _maybe_there(word: str, offers: Offers) -> bool:
    """Whether the server may find a word where its survey did not look."""
    if word.startswith("/"):
        return str(Path(word).parent) not in survey.PATH and not (Path(word).exists() and _at_home(word))
    path = os.environ.get("PATH", "").split(os.pathsep)
    return any(one in offers.bins for one in path) and _folder_of(word) in ("", *offers.bins)


def _command_fault(asked: Asked, commands: Sequence[str], where: str, offers: Offers | None = None) -> Fault | None:
    """That the program itself is there. A path in this folder goes along. offers: of a server, None in an image."""
    word = asked.program[0]
    if not commands:
        return None  # not looked at
    name, folder = Path(word).name, str(Path(word).parent)
    if "/" in word:
        inside = asked.own_folder and Path.cwd() != Path("/") and Path.cwd() in Path(word).parents
        if not word.startswith("/") or inside or (folder in survey.PATH and name in commands):
            return None
        shared = offers is not None and (is_shared(Path(folder), offers.mounts or {}) or _maybe_there(word, offers))
        anywhere = offers is None and folder not in survey.PATH  # in the image, off its path
        return None if shared or anywhere else Fault(f"{where} has no {word}")
    if word in commands or (word == "python" and PYTHON in commands):
        return None
    if offers is not None and (_maybe_there(word, offers) or _shared_program(word, offers)):
        return None
    return Fault(f"{where} has no program {word}")


def _shared_program(word: str, offers: Offers) -> bool:
    """Whether what this word is here is in a folder that the server has too."""
    folder = _folder_of(word)
    return bool(folder) and is_shared(Path(folder), offers.mounts or {})


def _python_fault(asked: Asked, python: PythonThere | None, what: str) -> Fault | None:
    """That the Python has what the program imports, and frameworks that use GPUs."""
    if asked.python is None:
        return None
    if python is None:
        return Fault(f"{what} is not there")
    lacking = absent(asked.imports, python.modules)
    if lacking:
        return Fault(f"{what} has no {_listed([one.top for one in lacking])} ({lacking[0].where})")
    for wanted, name, version, cuda in (
        (asked.torch, "PyTorch", python.torch, python.torch_cuda),
        (asked.tensorflow, "TensorFlow", python.tensorflow, python.tensorflow_cuda),
    ):
        if wanted and not version:
            return Fault(f"{what} has no {name}")
        if wanted and not cuda:
            return Fault(f"{what} has {name} {version}, which is built for processors alone", gpu=True)
    return None


def _emulated(asked: Asked, server: PoolServer) -> Fault | None:
    if (asked.torch or asked.tensorflow) and server.gpus and all(gpu.emulated for gpu in server.gpus):
        return Fault("the server's GPUs are emulated, and no framework itself computes on these", gpu=True)
    return None


def _known_python(asked: Asked, offers: Offers) -> bool:
    """Whether the server runs the program by a Python that was looked at."""
    words, _ = unwrapped(asked.program)
    word = words[0] if words else ""
    mine = offers.python.names if offers.python else ()
    other = Path(word).name.startswith("python") and Path(word).name in offers.commands and Path(word).name not in mine
    return _shared_program(word, offers) or not (other or _folder_of(word) in offers.bins or _maybe_there(word, offers))


def _python_of(asked: Asked, offers: Offers) -> PythonThere | None:
    """The Python that the server runs the program by: its own, or one in a folder that both have."""
    mounts, python = offers.mounts or {}, asked.python
    if python is not None and python.python and is_shared(Path(python.python).parent, mounts):
        return survey.python_of(python.python)
    mine = offers.python
    if mine is None:
        return None
    users = Path.home() / ".local/lib" / f"python{'.'.join(mine.version.split('.')[:2])}" / "site-packages"
    if users.is_dir() and is_shared(users, mounts):
        return replace(mine, modules=(*mine.modules, *(one.name.split(".")[0] for one in users.iterdir())))
    return mine


def _script_fault(asked: Asked, offers: Offers, image: bool) -> Fault | None:
    """That the program's file is where the program is."""
    file = asked.python.file if asked.python else None
    if file is None or Path.cwd() in file.resolve().parents or Path.cwd() == Path("/"):
        return None
    if image or not is_shared(file.resolve().parent, offers.mounts or {}):
        return Fault(f"{file} is not in this folder, which alone goes to the server; change to its folder", folder=True)
    return None


def _native_faults(asked: Asked, server: PoolServer, offers: Offers) -> list[Fault]:
    own = _python_of(asked, offers)
    what = f"the server's Python{f' {own.version}' if own else ''}"
    found = [
        _script_fault(asked, offers, image=False),
        _command_fault(asked, offers.commands, "the server", offers),
        _python_fault(asked, own, what) if _known_python(asked, offers) else None,
        _emulated(asked, server),
    ]
    return [fault for fault in found if fault]


def _image_faults(asked: Asked, server: PoolServer, offers: Offers, image: ImageThere) -> list[Fault]:
    name = f"image {image.names[0]}"
    looked = bool(image.commands)
    found = [
        _script_fault(asked, offers, image=True),
        _command_fault(asked, image.commands, name),
        _python_fault(asked, image.python, name) if looked else None,
        _emulated(asked, server),
    ]
    return [fault for fault in found if fault]


def _blocking(faults: Sequence[Fault], asked: Asked) -> list[Fault]:
    return [fault for fault in faults if not (fault.gpu and asked.cpu_ok)]


def described(image: ImageThere) -> str:
    """training (PyTorch 2.14.1, CUDA 13.0)."""
    python = image.python
    has = [f"PyTorch {python.torch}"] if python and python.torch else []
    has += [f"TensorFlow {python.tensorflow}"] if python and python.tensorflow else []
    has += [f"CUDA {image.cuda}" if image.cuda else "for processors"] if has else []
    return f"{image.names[0]}{f' ({_listed(has)})' if has else ''}"


@dataclass(frozen=True)
class _Place:
    """A way to run the program, with the faults of each server. image: None for the server itself."""

    faults: Mapping[str, list[Fault]]
    images: Mapping[str, ImageThere]

    def able(self, asked: Asked) -> tuple[str, ...]:
        """Servers that can run it so."""
        return tuple(name for name, found in self.faults.items() if not _blocking(found, asked))

    def commands(self, server: str, offers: Offers) -> tuple[str, ...]:
        """Programs on the path there."""
        return self.images[server].commands if self.images else offers.commands


def _places(asked: Asked, known: Mapping[str, PoolServer], default_image: str) -> list[_Place]:
    """In the order in which they are taken: the server itself, then the site's image; or the image that was named."""
    found = []
    offers = {name: server.offers for name, server in known.items() if server.offers}
    if not asked.image:
        found.append(_Place({name: _native_faults(asked, known[name], one) for name, one in offers.items()}, {}))
    wanted = asked.image or default_image
    images = {name: image for name, one in offers.items() if wanted for image in [one.image(wanted)] if image}
    if images:
        faults = {name: _image_faults(asked, known[name], offers[name], image) for name, image in images.items()}
        found.append(_Place(faults, images))
    return found


def _refusal(asked: Asked, places: Sequence[_Place]) -> LeaseError:
    """In one sentence: what is missing where, and what to do."""
    every = [fault for place in places for found in place.faults.values() for fault in _blocking(found, asked)]
    gpu = [
        fault
        for place in places
        if any(found and all(one.gpu for one in _blocking(found, asked)) for found in place.faults.values())
        for found in place.faults.values()
        for fault in found
        if fault.gpu
    ]
    if gpu:
        which = "PyTorch" if asked.torch else "TensorFlow"
        return LeaseError(
            f"{which} would see no GPU: {'; '.join(dict.fromkeys(one.why for one in gpu))}; choose another image "
            f"(toolkit images), or give {CPU_OK} to run it on the server's processors"
        )
    why = "; ".join(dict.fromkeys(fault.why for fault in every if not fault.gpu))
    hint = "choose an image that has it by --image (toolkit images), or have it installed and site.yml run"
    if any(fault.folder for fault in every):
        hint = "or name a folder of the server's by --folder"
    return LeaseError(f"{asked.program[0]} cannot run on {_listed(list(places[0].faults))}: {why}; {hint}")


def _image_line(asked: Asked, chosen: _Place, able: Sequence[str], native: Sequence[Fault]) -> list[str]:
    lines = []
    seen = [fault.why for name in able for fault in chosen.faults[name] if fault.gpu]
    without = f"; no GPU for it: {_listed(seen)} ({CPU_OK})" if seen else ""
    if chosen.images and not asked.image:
        why = f": {native[0].why}" if native else ""
        lines.append(f"image {described(chosen.images[able[0]])}{why}{without}")
    elif without:
        lines.append(without.removeprefix("; "))
    return lines


def _framework(asked: Asked, chosen: _Place, able: Sequence[str], offers: Sequence[Offers]) -> str:
    """That which the program imports, if each of the servers has it, and built for GPUs."""
    if asked.python is None or any(fault.gpu for name in able for fault in chosen.faults[name]):
        return ""
    looked = [bool(one.commands) for name, one in chosen.images.items() if name in able]
    if not all(looked or [_known_python(asked, one) for one in offers]):
        return ""
    return FRAMEWORKS["torch"] if asked.torch else FRAMEWORKS["tensorflow"] if asked.tensorflow else ""


def _inside(program: tuple[str, ...], python: PythonProgram | None) -> tuple[str, ...]:
    """The words, with those that name the program by its whole path in this folder as paths in it."""
    here, named = Path.cwd(), {program[0], *([str(python.file)] if python and python.file else [])}
    found = []
    for word in program:
        inside = word in named and word.startswith("/") and here in Path(word).parents
        found.append(f"./{Path(word).relative_to(here)}" if inside else word)
    return tuple(found)


def decide(
    asked: Asked,
    servers: Mapping[str, PoolServer],
    default_image: str = "",
    look: Callable[[Path], FolderCopy] = measure,
) -> Choice:
    """How the program runs on these servers, by name. LeaseError where none of them can run it. Servers that were not
    surveyed count as able to, as they find out themselves."""
    known = {name: server for name, server in servers.items() if server.offers is not None}
    if not known:
        return Choice(asked.program, tuple(servers), asked.image)
    places = _places(asked, known, default_image)
    if not places:
        return Choice(asked.program, tuple(servers), asked.image)  # an image that came since: the servers are asked
    chosen = next((place for place in places if place.able(asked)), None)
    if chosen is None:
        raise _refusal(asked, places)
    able = chosen.able(asked)
    # An image may have come to a server since.
    perhaps = tuple(name for name in servers if asked.image and name not in chosen.faults)
    native = [] if asked.image else [one for found in places[0].faults.values() for one in found]
    lines = _image_line(asked, chosen, able, native)
    program, copy = asked.program, None
    here = Path.cwd()
    offers = [known[name].offers or Offers() for name in able]
    if (
        asked.own_folder
        and not asked.copied
        and here != Path("/")
        and not all(is_shared(here, one.mounts or {}) for one in offers)
    ):
        copy, program = look(here), _inside(program, asked.python)
        share = "shares" if len(able) == 1 else "share"
        lines.insert(0, f"{copy.words()} to the server and back: {_listed(able)} {share} no folder with this machine")
    commands = [chosen.commands(name, one) for name, one in zip(able, offers)]
    if program[0] == "python" and all(one and "python" not in one for one in commands):
        program = (PYTHON, *program[1:])
    image = chosen.images[able[0]].names[0] if chosen.images else ""
    identities = {one.identity for name, one in chosen.images.items() if name in able}
    known_by = identities.pop() if len(identities) == 1 and not asked.image else ""
    framework = _framework(asked, chosen, able, offers)
    return Choice(program, able + perhaps, asked.image or image, known_by, copy, tuple(lines), framework)
