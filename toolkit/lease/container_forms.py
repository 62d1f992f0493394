"""What a lease's owner and root's helper for containers (module container) say to each other: two forms, each written
and read here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from toolkit.lease import LeaseError
from toolkit.lease.fields import Fields

#: What runs a container for a lease's owner, as root (role remoting_server).
HELPER = ("sudo", "--non-interactive", "/usr/lib/elastic-ai/lease-server/bin/container")
_WORD = r"[^\s\x00-\x1f\x7f]{1,400}"


@dataclass(frozen=True)
class ContainerWish:
    """job: of the owner's lease. folder: that the program runs in. tty: whether it has a terminal. environment: path of
    a file with its variables."""

    job: str
    image: str
    folder: str
    environment: str
    tty: bool
    program: tuple[str, ...]


def wish_words(job: str, image: str) -> list[str]:
    """The helper's command line as far as its caller knows it here; ranks.HOLD adds --folder=, --environment=, --tty
    and, after --, the program."""
    return [*HELPER, "run", f"--job={job}", f"--image={image}"]


def parse_wish(argv: Sequence[str]) -> ContainerWish:
    """The wish in what comes after `run`; LeaseError where it is none. Nothing in it can be trusted."""
    words = list(argv)
    told: dict[str, str] = {}
    while words and words[0] != "--":
        key, _, value = words.pop(0).partition("=")
        if key not in ("--job", "--image", "--folder", "--environment", "--tty") or key in told:
            raise LeaseError(f"container run: {key[:40]!r} is unknown; the caller is of another release of the toolkit")
        told[key] = value
    missing = [key for key in ("--job", "--image", "--folder", "--environment") if not told.get(key)]
    if missing or len(words) < 2:
        raise LeaseError(f"container run: no {', '.join(missing) or 'program'}")
    return ContainerWish(
        job=told["--job"],
        image=told["--image"],
        folder=told["--folder"],
        environment=told["--environment"],
        tty="--tty" in told,
        program=tuple(words[1:]),
    )


@dataclass(frozen=True)
class ImageNames:
    """What an image is known by on a server. identity: by which Docker runs it there, of its configuration or, where
    containerd keeps images, of its manifest or index. descriptor: a digest that Docker has beside it. repository: names
    with the digest by which it was pulled or pushed. content: digest of what a program in it meets."""

    identity: str
    descriptor: str = ""
    repository: tuple[str, ...] = ()
    content: str = ""

    @property
    def usable(self) -> list[str]:
        """By what Docker finds it."""
        return [self.identity, *self.repository]

    @property
    def digests(self) -> set[str]:
        """Two servers have one image where one of these is the same."""
        found = {self.identity, self.descriptor, *(name.rpartition("@")[2] for name in self.repository)}
        return (found | {f"content {self.content}" if self.content else ""}) - {""}

    def text(self) -> str:
        """In one line."""
        return json.dumps(asdict(self))


def parse_names(text: str, what: str) -> ImageNames:
    """DamagedDocument where it is none. what: for the error."""
    fields = Fields.of(text.strip(), what)
    names = ImageNames(
        identity=fields.text("identity", _WORD),
        descriptor=fields.text("descriptor", f"({_WORD})?"),
        repository=fields.texts("repository", _WORD),
        content=fields.text("content", f"({_WORD})?"),
    )
    fields.end()
    return names
