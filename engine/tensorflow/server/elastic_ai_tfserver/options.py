"""The command line."""

from __future__ import annotations

import argparse
import ipaddress

from elastic_ai_tfserver import NAME, __doc__, fail, release

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def options() -> argparse.Namespace:
    """The command line; exits with 2 and a sentence when something is wrong."""
    parser = argparse.ArgumentParser(prog=NAME, description=__doc__, allow_abbrev=False)
    parser.add_argument("--bind", default="127.0.0.1", metavar="ADDR", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="0: any free port (0)")
    parser.add_argument("--port-file", metavar="FILE", help="gets the port when the server listens")
    parser.add_argument(
        "--token-file", metavar="FILE", required=True, help="first line: the token, 16 to 255 characters"
    )
    parser.add_argument(
        "--allow", metavar="IP,...", required=True, help="clients' addresses; all others are turned away"
    )
    parser.add_argument("--memory-limit", type=int, default=0, metavar="BYTES", help="of each device")
    parser.add_argument("--context-bytes", type=int, default=0, metavar="BYTES", help="what a context takes of that")
    parser.add_argument("--report-fd", type=int, default=-1, metavar="N", help="events as JSON lines")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="what computes (cpu)")
    parser.add_argument("--devices", type=int, default=1, metavar="N", help="how many GPUs the lease has (1)")
    parser.add_argument("--scratch", metavar="FOLDER", help="where sessions have their folders (HOME)")
    parser.add_argument("--version", action="version", version=release())
    given = parser.parse_args()
    if not 0 <= given.port <= 65535:
        fail(f"--port {given.port}: give a number from 0 to 65535")
    if given.memory_limit < 0 or given.context_bytes < 0 or not 1 <= given.devices <= 16:
        fail("--memory-limit and --context-bytes are not negative, --devices is 1 to 16")
    if given.memory_limit and given.memory_limit <= given.context_bytes:
        fail(f"the part has {given.memory_limit} bytes of a GPU, and a context takes {given.context_bytes} of them: "
             "ask for a larger part", 1)  # fmt: skip
    return given


def allowed(words: str) -> set[Address]:
    """Addresses of --allow."""
    addresses = set()
    for one in words.split(","):
        try:
            addresses.add(plain(one))
        except ValueError:
            fail(f"--allow: {one!r} is no IP address")
    return addresses


def plain(address: str) -> Address:
    """IPv4 addresses in IPv6 form are IPv4 addresses."""
    parsed = ipaddress.ip_address(address)
    return getattr(parsed, "ipv4_mapped", None) or parsed


def read_token(file: str) -> str:
    """The token; exits with a sentence where there is none."""
    try:
        with open(file, encoding="ascii") as opened:  # noqa: PTH123
            token = (opened.readline(300) or "").strip()
    except (OSError, UnicodeDecodeError) as fault:
        fail(f"--token-file {file}: {getattr(fault, 'strerror', None) or 'it is no text'}")
    if not 16 <= len(token) <= 255:
        fail(f"--token-file {file}: its first line must have 16 to 255 characters")
    return token
