"""Images of containers, as a user asks for them before anything is leased: on the pool's servers, or here.

Here the program's container is the user's own, by an engine of containers that he may use; the remoting engine's
library and the lease's endpoint are put into it, so that the image needs no driver.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from toolkit.lease import LeaseError
from toolkit.lease.container_forms import HELPER, ImageNames, parse_names
from toolkit.lease.fields import DamagedDocument
from toolkit.lease.jobs.slurm import said
from toolkit.lease.machine.host import Host

#: A server whose processors are all taken answers nothing in this time, and is asked again when the lease runs.
ANSWERS_S = 10
#: Exit code of the helper where it has an answer, and no image (module container).
NO_IMAGE = 125
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}")


def _ask(host: Host, node: str, image: str) -> tuple[ImageNames | None, str]:
    """What the image is known by on a server, or why it has none; (None, "") where the server has no room for the
    question."""
    words = ["srun", f"--immediate={ANSWERS_S}", f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--mem=16"]
    words += ["--time=1", "--mpi=none", "--input=none", "--chdir=/", "--quiet", "--job-name=elastic-ai-image"]
    try:
        done = host.slurm.run([*words, *HELPER, "look", image], timeout_s=6 * ANSWERS_S)
    except LeaseError:
        return None, ""
    if done.returncode == 0:
        try:
            return parse_names(done.stdout, f"what {node} says of the image"), ""
        except DamagedDocument as fault:
            return None, f"{fault}; run site.yml"
    return None, said(done) if done.returncode == NO_IMAGE else ""


def _checked(image: str) -> str:
    if not NAME.fullmatch(image):
        raise LeaseError(f"--image {image[:80]!r}: not the name of an image")
    return image


def _same(have: Sequence[ImageNames]) -> bool:
    """Whether all servers have one image. Docker keeps images in two ways, by which the same image has identities that
    differ: then it is one where a digest of a repository, or the content, is the same."""
    groups: list[set[str]] = []
    for mine in (names.digests for names in have):
        touched = [group for group in groups if group & mine]
        groups = [*(group for group in groups if not group & mine), mine.union(*touched)]
    return len(groups) <= 1


def _reference(image: str, have: Sequence[ImageNames]) -> str:
    """By what every one of these servers finds it: its identity, a name with a digest, else the name; "" of none."""
    if not have:
        return ""
    common = set(have[0].usable).intersection(*(names.usable for names in have))
    return next((name for name in have[0].usable if name in common), image)


def find(host: Host, image: str, nodes: Sequence[str]) -> tuple[str, list[str]]:
    """What the servers know the image by, and those that may have it. LeaseError where none has, or they have different
    ones. "" where no server could be asked now."""
    _checked(image)
    with ThreadPoolExecutor(max(len(nodes), 1)) as workers:
        answers = dict(zip(nodes, workers.map(lambda node: _ask(host, node, image), nodes)))
    have = {node: names for node, (names, _why) in answers.items() if names is not None}
    without = [why for _names, why in answers.values() if why]
    if not have and len(without) == len(nodes):
        raise LeaseError(f"--image {image}: {'; '.join(without)}")
    if not _same(list(have.values())):
        told = ", ".join(f"{node} {names.identity[:19]}" for node, names in have.items())
        raise LeaseError(f"--image {image}: the servers have different images of that name ({told}); choose by -l")
    may = [node for node, (_names, why) in answers.items() if not why]
    return _reference(image, list(have.values())), may


@dataclass(frozen=True)
class Here:
    """A container on this machine: which program makes it, and of which image (identity and name)."""

    engine: str
    image: str
    identity: str
    variables: tuple[str, ...] = ()
    name: str = field(default_factory=lambda: f"elastic-ai-{secrets.token_hex(6)}")

    def command(
        self, argv: Sequence[str], given: Mapping[str, str], folders: Sequence[Path], programs: Sequence[Path] = ()
    ) -> list[str]:
        """Its command line. given: variables, whose values the engine takes from its own environment; folders: what
        they name, to be there under the same paths; programs: to be found in it by their names."""
        here = str(Path.cwd())
        if ":" in here:
            raise LeaseError(f"{here}: containers have no folder of such a name")
        words = [self.engine, "run", "--rm", f"--name={self.name}", "--pull=never", "--interactive", "--init"]
        words += ["--tty"] if os.isatty(0) and os.isatty(1) else []
        own = ["--userns=keep-id"] if Path(self.engine).name == "podman" else [f"--user={os.getuid()}:{os.getgid()}"]
        words += [*own, "--network=host", "--ipc=host"]
        words += [f"--volume={here}:{here}", f"--workdir={here}"] if here != "/" else []
        words += [f"--volume={folder}:{folder}:ro" for folder in folders]
        words += [f"--volume={program}:/usr/local/bin/{program.name}:ro" for program in programs]
        return [*words, *(f"--env={name}" for name in [*given, *self.variables]), self.identity, *argv]

    def remove(self) -> None:
        """Whatever is left of it."""
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run([self.engine, "rm", "--force", self.name], capture_output=True, check=False, timeout=60)


def here(image: str, variables: Sequence[str] = ()) -> Here:
    """An image on this machine. LeaseError where no engine of containers is installed, its user may not use it, or the
    image is not there."""
    engine = shutil.which("podman") or shutil.which("docker")
    if engine is None:
        raise LeaseError("--image: neither Podman nor Docker is installed here; --where server runs it on the server")
    try:
        words = [engine, "image", "inspect", "--format", "{{.Id}}", _checked(image)]
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "LC_ALL": "C", "LANGUAGE": ""},
        )
    except subprocess.TimeoutExpired:
        raise LeaseError(f"--image: {Path(engine).name} did not answer within 60 s") from None
    found = done.stdout.strip()
    if done.returncode or not found:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise LeaseError(f"--image {image}: {Path(engine).name} on this machine: {why}")
    return Here(engine, image, found if found.startswith("sha256:") else f"sha256:{found}", tuple(variables))
