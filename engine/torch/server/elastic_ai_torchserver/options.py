"""The command line."""

from __future__ import annotations

import argparse
import ipaddress
import os

from elastic_ai_torchserver import NAME, __doc__, fail, release

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
    parser.add_argument(
        "--peers",
        metavar="FILE",
        help="the lease's servers in its order, with this one: lines ADDRESS PORT",
    )
    parser.add_argument("--peer-token-file", metavar="FILE", help="first line: the secret of the lease's servers")
    parser.add_argument("--memory-limit", type=int, default=0, metavar="BYTES", help="of each device, for all sessions")
    parser.add_argument("--context-bytes", type=int, default=0, metavar="BYTES", help="what a session's context takes")
    parser.add_argument(
        "--idle-timeout", type=int, default=0, metavar="S", help="end after S seconds without a session"
    )
    parser.add_argument("--report-fd", type=int, default=-1, metavar="N", help="events as JSON lines")
    parser.add_argument(
        "--use-file", metavar="FILE", help="gets the bytes in use of each device, a line each; -1: unknown"
    )
    parser.add_argument("--transport", default="tcp", choices=["tcp", "verbs", "tcp,verbs"],
                        help="what clients may have (tcp); verbs needs an RDMA port with the address ADDR")  # fmt: skip
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="what computes (cpu)")
    parser.add_argument("--devices", type=int, default=1, metavar="N", help="with cpu: how many devices it shows (1)")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="of a session, on processors (torch's own)")
    parser.add_argument("--busy", type=float, default=60, metavar="S", help="an operator that runs longer is told (60)")
    parser.add_argument("--like-cuda", type=int, default=-1, metavar="SEED",
                        help="for tests, with cpu: behave as a GPU does (like_cuda.h)")  # fmt: skip
    parser.add_argument("--library", metavar="FILE", help="instead of lib/libelastic_ai_torchserver-MINOR.so")
    parser.add_argument("--operators", metavar="FILE", help="instead of lib/torch-operators.txt")
    parser.add_argument("--version", action="version", version=release())
    given = parser.parse_args()
    if not 0 <= given.port <= 65535:
        fail(f"--port {given.port}: give a number from 0 to 65535")
    if given.memory_limit < 0 or given.context_bytes < 0 or not 1 <= given.devices <= 16:
        fail("--memory-limit and --context-bytes are not negative, --devices is 1 to 16")
    if bool(given.peers) != bool(given.peer_token_file):
        fail("--peers and --peer-token-file belong together")
    return given


def keep_report(given: argparse.Namespace) -> None:
    """The file of --report-fd is this process's and its children's, and of no program that they start."""
    if given.report_fd >= 0:
        try:
            os.set_inheritable(given.report_fd, False)
        except OSError as fault:
            fail(f"--report-fd {given.report_fd}: {fault.strerror}")


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
