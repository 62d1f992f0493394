"""A link of stated rate and delay on one machine, with a server at its far end; both end with who made them.

Two network namespaces without a name, joined by a virtual cable (veth): this process enters the one, the server's
begins in the other. Nothing of it is in the machine's own network, and the kernel takes both away when the last process
in them ends, however it ends. The rate is the kernel's (tbf), at both ends; the delay is the kernel's (netem) where it
has that, else a relay's, a program on the near side that gives each byte on so much later. Without the right to make
namespaces the relay makes both, over the loopback.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from validation.probes.supervise import die_with_parent

NEAR, FAR, PREFIX = "192.0.2.1", "192.0.2.2", "/30"  # of documentation (RFC 5737), and in no other namespace
LOOPBACK = "127.0.0.1"
MTU = "9000"
BURST, QUEUE = "256k", "20ms"  # of tbf: 80 us of 25 Gbit/s, more than what the kernel hands over at once
WAIT_S = 30.0  # for one command, and for a server that starts
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET, linux/sched.h
_libc = ctypes.CDLL(None, use_errno=True)


class NoLink(Exception):
    """Why there is no such link; one sentence."""


class Link(NamedTuple):
    """What stands between a program and its GPU. gbps: 10^9 bit/s, 0: no limit; delay_us: each way.

    rate_by: "tbf", "relay" or ""; delay_by: "netem", "relay" or "".
    """

    gbps: float
    delay_us: float
    rate_by: str
    delay_by: str

    @property
    def spaces(self) -> bool:
        """Whether it needs namespaces."""
        return self.rate_by == "tbf" or self.delay_by == "netem"


def _called(done: int, what: str) -> None:
    if done:
        raise NoLink(f"{what}: {os.strerror(ctypes.get_errno())}")


def new_network() -> None:
    """Enter a network namespace of one's own. For a child, between fork and exec, or for a process with one thread."""
    _called(_libc.unshare(_NEW_NETWORK), "a network namespace cannot be made")


def _command(*words: str, inside: int | None = None) -> None:
    """A command in this namespace, or in that of a process; NoLink where it fails."""

    def there() -> None:
        die_with_parent()
        if inside is not None:
            with open(f"/proc/{inside}/ns/net", "rb") as space:  # noqa: PTH123
                _called(_libc.setns(space.fileno(), _NEW_NETWORK), "the namespace cannot be entered")

    try:
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=WAIT_S, preexec_fn=there,
            stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    except FileNotFoundError:
        raise NoLink(f"{words[0]} is missing; install package iproute2") from None
    except (subprocess.SubprocessError, OSError) as fault:
        raise NoLink(f"{' '.join(words)}: {fault}") from None
    if done.returncode:
        raise NoLink(f"{' '.join(words)}: {(done.stderr or done.stdout).strip().splitlines()[0][:200]}")


def join(far: int, link: Link) -> None:
    """A cable between this process's namespace and that of process `far`, shaped at both ends; NoLink otherwise."""
    _command("ip", "link", "add", "near", "mtu", MTU, "type", "veth", "peer", "name", "far", "netns", str(far))
    _command("ip", "link", "set", "far", "mtu", MTU, inside=far)
    for port, address, inside in (("near", NEAR, None), ("far", FAR, far)):
        _command("ip", "link", "set", "lo", "up", inside=inside)
        _command("ip", "addr", "add", f"{address}{PREFIX}", "dev", port, inside=inside)
        _command("ip", "link", "set", port, "up", inside=inside)
        for words in shape(port, link):
            _command("tc", "qdisc", "add", "dev", port, *words, inside=inside)


def shape(port: str, link: Link) -> list[list[str]]:
    """Words of tc for one end, the outer queue first."""
    found = []
    at = ["root", "handle", "1:"]
    if link.delay_by == "netem":
        found.append([*at, "netem", "delay", f"{link.delay_us:g}us", "limit", "100000"])
        at = ["parent", "1:1", "handle", "2:"]
    if link.rate_by == "tbf":
        found.append([*at, "tbf", "rate", f"{link.gbps:g}gbit", "burst", BURST, "latency", QUEUE])
    return found


@contextmanager
def child(command: Sequence[str], inside: bool = False, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A program that ends with this one; `inside`: in a network namespace of its own, without any link."""

    def before() -> None:
        die_with_parent()
        if inside:
            new_network()

    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd="/", preexec_fn=before, **more)
    except (OSError, subprocess.SubprocessError) as fault:
        raise NoLink(f"{command[0]}: {fault}") from None
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(WAIT_S / 3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def relayed(program: str, address: str, port: int, link: Link) -> Iterator[tuple[str, int]]:
    """Address and port by which a server is reached with what the kernel does not make of this link."""
    rate = link.gbps * 1e9 / 8 if link.rate_by == "relay" else 0
    delay = link.delay_us if link.delay_by == "relay" else 0
    if not rate and not delay:
        yield address, port
        return
    words = [program, address, str(port), str(int(rate)), str(int(delay))]
    with child(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None  # PIPE
        said = process.stdout.readline().strip()
        if not said.isdigit():
            raise NoLink("the relay did not start")
        yield LOOPBACK, int(said)


def tried(made: Callable[[], None]) -> str:
    """Why something cannot be done, tried in a child of this process; "" where it can."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            made()
            os._exit(0)
        except NoLink as fault:
            os.write(write, str(fault).encode()[:400])
        finally:
            os._exit(1)
    os.close(write)
    with os.fdopen(read, "rb") as said:
        words = said.read().decode("utf-8", "replace")
    _, status = os.waitpid(pid, 0)
    return words or ("" if status == 0 else "who tries it ends")


def looked() -> dict[str, str]:
    """`trouble`: why no shaped link between namespaces can be made here, "" where one can; `delay_by`."""

    def one(link: Link) -> Callable[[], None]:
        def make() -> None:
            new_network()
            with child(["sleep", "60"], inside=True) as far:
                join(far.pid, link)

        return make

    trouble = tried(one(Link(1, 0, "tbf", "")))
    netem = not trouble and not tried(one(Link(1, 100, "tbf", "netem")))
    return {"trouble": trouble, "delay_by": "netem" if netem else "relay"}


if __name__ == "__main__":
    print(json.dumps(looked()))
    sys.exit(0)
