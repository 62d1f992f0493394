"""Images of containers in a mirror: kept as docker-registry keeps them, copied by skopeo, served by docker-registry."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from toolkit.errors import UsageFault
from toolkit.mirror.tools import ENGLISH, run
from validation.base.temporary import room

Say = Callable[[str], None]
FOLDER = "images"
TOOLS = {"skopeo": "skopeo", "docker-registry": "docker-registry"}
"""Programs by the packages that have them."""
STARTS_S = 60.0
_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_BY_DIGEST = re.compile(
    rf"(?:(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+(?::\d+)?|[A-Za-z0-9-]+:\d+|localhost)/)?"
    rf"(?P<path>{_PART}(?:/{_PART})*)@sha256:(?P<hex>[0-9a-f]{{64}})"
)
"""Source: the grammar of references, distribution/reference."""
_STORED = "docker/registry/v2/repositories"


@dataclass(frozen=True)
class Image:
    """An image by its digest. path: its name without the registry that it came from."""

    reference: str
    path: str
    hex: str

    def at(self, address: str) -> str:
        """The same image in the registry at this address."""
        return f"{address}/{self.path}@sha256:{self.hex}"

    def stored(self, folder: Path) -> Path:
        """What docker-registry writes when it has all of the image."""
        return folder / FOLDER / _STORED / self.path / "_manifests/revisions/sha256" / self.hex / "link"


@dataclass(frozen=True)
class Door:
    """Where a registry listens. certificate, private_key: PEM files, for HTTPS."""

    host: str
    port: int
    certificate: Path | None = None
    private_key: Path | None = None

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"{self.host}:{self.port}"


def image_of(reference: str) -> Image:
    """An image. UsageFault for one without a digest: tomorrow it may be another."""
    found = _BY_DIGEST.fullmatch(reference)
    if found is None:
        raise UsageFault(f"{reference}: name the image by its digest (NAME@sha256:...), since a tag may change")
    return Image(reference, found["path"], found["hex"])


def take_images(references: Sequence[str], folder: Path, say: Say) -> list[str]:
    """Have each image, and no other; those that could not be, in words. What is there is not copied again."""
    images = [image_of(one) for one in references]
    kept = folder / FOLDER
    if not images:
        shutil.rmtree(kept, ignore_errors=True)
        return []
    lacks = [package for program, package in TOOLS.items() if shutil.which(program) is None]
    if lacks:
        return [f"not included: {one.reference}: {' and '.join(lacks)} not installed" for one in images]
    others = _without(images, folder)
    wanted = [one for one in images if not one.stored(folder).is_file()]
    if others:
        _sweep(kept)
    if not wanted:
        return []
    with registry(kept, Door("127.0.0.1", _free_port())) as address:
        for one in wanted:
            say(f"copying image {one.reference}")
            words = ["skopeo", "--insecure-policy", "copy", "--all", "--preserve-digests", "--dest-tls-verify=false"]
            run([*words, f"docker://{one.reference}", f"docker://{one.at(address)}"], package="skopeo")
    for unfinished in kept.rglob("_uploads"):
        shutil.rmtree(unfinished)
    return []


def missing(references: Sequence[str], folder: Path) -> list[str]:
    """Images of a plan that the mirror does not have."""
    return [one for one in references if not image_of(one).stored(folder).is_file()]


def _without(images: Sequence[Image], folder: Path) -> bool:
    """Take away the manifests of images that are no longer planned; whether there was one."""
    known = {(one.path, hex) for one in images for hex in (one.hex, *_parts(one, folder))}
    stored = folder / FOLDER / _STORED
    gone = [
        link.parent
        for link in stored.rglob("_manifests/revisions/sha256/*/link")
        if (link.relative_to(stored).as_posix().partition("/_manifests/")[0], link.parent.name) not in known
    ]
    for one in gone:
        shutil.rmtree(one)
    return bool(gone)


def _parts(image: Image, folder: Path) -> list[str]:
    """Manifests of an image for several kinds of machines, which are its repository's, too."""
    blob = folder / FOLDER / f"docker/registry/v2/blobs/sha256/{image.hex[:2]}/{image.hex}/data"
    try:
        listed = json.loads(blob.read_bytes()).get("manifests", [])
        return [str(one["digest"]).removeprefix("sha256:") for one in listed]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _sweep(kept: Path) -> None:
    """Take away what no manifest names any more."""
    with room("eai-mirror-registry") as private:
        file = private / "config.yml"
        file.write_text(yaml.safe_dump(_settings(kept, Door("127.0.0.1", 0), writes=True)), encoding="utf-8")
        run(["docker-registry", "garbage-collect", str(file)], package="docker-registry")


@contextmanager
def registry(kept: Path, door: Door, writes: bool = True) -> Iterator[str]:
    """A docker-registry over what is kept, until the end of the block; its address. UsageFault: it does not start."""
    kept.mkdir(parents=True, exist_ok=True)
    with room("eai-mirror-registry") as private:
        file, log = private / "config.yml", private / "log"
        file.write_text(yaml.safe_dump(_settings(kept, door, writes)), encoding="utf-8")
        try:
            with log.open("wb") as out:
                child = subprocess.Popen(
                    ["docker-registry", "serve", str(file)], stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                    env=ENGLISH, start_new_session=True,
                )  # fmt: skip
        except FileNotFoundError:
            raise UsageFault("docker-registry is not installed; install docker-registry") from None
        try:
            _wait(child, door, log)
            yield door.address
        finally:
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def _wait(child: subprocess.Popen[bytes], door: Door, log: Path) -> None:
    end = time.monotonic() + STARTS_S
    while time.monotonic() < end and child.poll() is None:
        try:
            socket.create_connection((door.host, door.port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            if child.poll() is None:
                return
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise UsageFault(
        f"docker-registry does not start at {door.address}: {said[-1][:300] if said else 'it says nothing'}"
    )


def _settings(kept: Path, door: Door, writes: bool) -> dict[str, object]:
    tls = {"certificate": str(door.certificate), "key": str(door.private_key)} if door.certificate else None
    return {
        "version": "0.1",
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(kept.resolve())},
            "maintenance": {"uploadpurging": {"enabled": False}, "readonly": {"enabled": not writes}},
        },
        "http": {"addr": door.address, "secret": "none is kept", **({"tls": tls} if tls else {})},
    }


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
