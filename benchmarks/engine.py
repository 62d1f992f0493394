"""The reference engine over a link, against iperf3 over the same link: bandwidth and latency of copies.

    benchmarks/engine.py [--link loopback|veth] [--rate-gbps R [--delay-us D]] [--mtu 9000] [--bytes 67108864]
                         [--rounds 5] [--against CHECKOUT] [--json]

Client -> TCP -> server -> emulated driver (host memory), with the artefact built from the sources here. veth: two
network namespaces of its own, joined by a virtual cable, needs root; with --rate-gbps both ends are shaped to it.
With --delay-us each direction takes half of it, by TUN devices and delay_line.c in place of the cable.
In each round iperf3 (one TCP stream, both directions) and the copies take turns, so that a busy machine disturbs both;
with --against, the engine of another checkout of this project as well, now before and now behind: the ratio of the two
is that of neighbours in time.
Data of every copy are verified. What is measured is the engine's and the network's cost, never a GPU's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from toolkit.engine.build import compile_devices, compile_engine, default_release  # noqa: E402

TOKEN = "benchmark-token-of-no-secret"  # it guards host memory on a link of our own
IPERF_PORT = 5201
IPERF_S = 2
SPACES = ("eai-bench-a", "eai-bench-b")


class BenchmarkError(Exception):
    """Why there is no figure."""


def run(*words: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        raise BenchmarkError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


@contextmanager
def delay_line(mtu: int, rate_gbps: float, delay_us: int) -> Iterator[None]:
    """The namespaces' devices, joined by a process."""
    with tempfile.TemporaryDirectory(prefix="eai-bench-") as folder:
        program = str(Path(folder) / "delay_line")
        run("gcc", "-O2", "-pthread", "-o", program, str(Path(__file__).with_name("delay_line.c")))
        words = [program, *SPACES, str(mtu), str(rate_gbps), str(delay_us // 2)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            try:
                if process.stdout is None or process.stdout.readline() != "ready\n":
                    raise BenchmarkError("no delay: it takes root and /dev/net/tun")
                yield
            finally:
                process.terminate()


@contextmanager
def link(
    kind: str, mtu: int, rate_gbps: float | None, delay_us: int | None = None
) -> Iterator[tuple[list[str], list[str], str, str]]:
    """Words before a command at the client's and at the server's end, and both addresses."""
    if kind == "loopback":
        yield [], [], "127.0.0.1", "127.0.0.1"
        return
    a, b = SPACES
    stack = ExitStack()
    try:
        for space in SPACES:
            run("ip", "netns", "add", space)
        if rate_gbps and delay_us:
            stack.enter_context(delay_line(mtu, rate_gbps, delay_us))
        else:
            run("ip", "-n", a, "link", "add", "v0", "mtu", str(mtu), "type", "veth", "peer", "name", "v0", "netns", b)
        for space, address in ((a, "192.0.2.1/24"), (b, "192.0.2.2/24")):
            run("ip", "-n", space, "addr", "add", address, "dev", "v0")
            run("ip", "-n", space, "link", "set", "v0", "mtu", str(mtu), "up")
            if rate_gbps and not delay_us:
                shape = ["tbf", "rate", f"{rate_gbps}gbit", "burst", "256k", "latency", "20ms"]
                run("tc", "-n", space, "qdisc", "add", "dev", "v0", "root", *shape)
        yield ["ip", "netns", "exec", a], ["ip", "netns", "exec", b], "192.0.2.1", "192.0.2.2"
    finally:
        stack.close()
        for space in SPACES:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


@contextmanager
def serving(folder: Path, before: list[str], client: str, address: str, memory_bytes: int) -> Iterator[int]:
    """The engine's server over one emulated device."""
    gpu = {"uuid": "GPU-" + "0" * 32, "name": "Emulated", "memory_bytes": memory_bytes, "pci_bus_id": "0:1:0.0"}
    (folder / "gpus.json").write_text(json.dumps({"gpus": [gpu | {"sm_count": 1}]}))
    (folder / "token").write_text(TOKEN)
    environment = {
        "PATH": os.environ["PATH"],
        "LD_LIBRARY_PATH": str(folder / "devices"),
        "ELASTIC_AI_EMULATED_GPUS": str(folder / "gpus.json"),
        "ELASTIC_AI_EMULATED_STATE": str(folder / "state"),
    }
    words = [*before, str(folder / "bin/elastic-ai-refserver"), "--bind", address, "--allow", client]
    words += ["--port-file", str(folder / "port"), "--token-file", str(folder / "token")]
    with subprocess.Popen(words, env=environment) as process:
        try:
            while not (folder / "port").exists():
                if process.poll() is not None:
                    raise BenchmarkError("the server did not start")
                time.sleep(0.01)
            yield int((folder / "port").read_text())
        finally:
            process.terminate()


def iperf_gb_s(client: list[str], server: list[str], address: str, reverse: bool) -> float:
    """One TCP stream's payload in GB/s (10^9 byte/s)."""
    words = [*server, "iperf3", "--server", "--one-off", "--bind", address, "--port", str(IPERF_PORT)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
        try:
            time.sleep(0.3)
            options = ["--time", str(IPERF_S), "--json", *(["--reverse"] if reverse else [])]
            said = run(*client, "iperf3", "--client", address, "--port", str(IPERF_PORT), *options)
        finally:
            process.terminate()
    return float(json.loads(said)["end"]["sum_received"]["bits_per_second"]) / 8e9


def copies(folder: Path, before: list[str], address: str, port: int, size: int) -> dict[str, Any]:
    """One run of the copy benchmark; refused as a measurement when data were wrong."""
    environment = {
        "PATH": os.environ["PATH"],
        "LD_LIBRARY_PATH": str(folder / "lib"),
        "ELASTIC_AI_SERVERS": f"{address}:{port}",
        "ELASTIC_AI_TOKEN_FILE": str(folder / "token"),
    }
    program = [sys.executable, str(ROOT / "toolkit/lease/programs/copybench.py"), "--json", "--bytes", str(size)]
    said: dict[str, Any] = json.loads(run(*before, *program, env=environment))
    return said


def spread(values: list[float]) -> dict[str, float]:
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def medians(document: dict[str, Any]) -> dict[str, float]:
    """The figures of one run of the copy benchmark."""
    found = {"sync_latency_us": statistics.median(document["sync_latency_us"][0])}
    for pair in document["pairs"]:
        name = {"H0": "h2d", "0H": "d2h"}.get(pair["source"] + pair["target"])
        if name:
            found[name] = statistics.median(pair["bandwidth_gb_s"])
            found[f"{name}_latency_us"] = statistics.median(pair["latency_us"])
    return found


def build_of(checkout: Path, folder: Path) -> None:
    """Engine and devices of another checkout, by its own build."""
    code = (
        "import sys; sys.path[0] = sys.argv[2]; "  # not the folder that this runs in, which may be another checkout
        "from pathlib import Path; from toolkit.engine import build; to = Path(sys.argv[1]); "
        "build.compile_engine(to, 'against'); build.compile_devices(to / 'devices')"
    )
    run(sys.executable, "-c", code, str(folder), str(checkout.resolve()))


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    engines = [folder]
    compile_engine(folder, default_release())
    compile_devices(folder / "devices")
    if options.against:
        engines.append(folder / "against")
        build_of(options.against, engines[1])
    figures: dict[str, list[float]] = {n: [] for n in ("iperf_up", "iperf_down")}
    with ExitStack() as stack:
        client, server, here, there = stack.enter_context(
            link(options.link, options.mtu, options.rate_gbps, options.delay_us)
        )
        ports = {e: stack.enter_context(serving(e, server, here, there, options.bytes * 3)) for e in engines}
        for number in range(options.rounds):
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
            figures["iperf_up"].append(iperf_gb_s(client, server, there, False))
            found = {}
            for engine in engines if number % 2 else reversed(engines):
                found[engine] = medians(copies(engine, client, there, ports[engine], options.bytes))
            figures["iperf_down"].append(iperf_gb_s(client, server, there, True))
            for name, value in found[folder].items():
                figures.setdefault(name, []).append(value)
                if options.against:
                    other = found[engines[1]][name]
                    figures.setdefault(f"against_{name}", []).append(other)
                    figures.setdefault(f"{name}_over_against", []).append(value / other)
    ratios = {
        "h2d_over_iperf": [a / b for a, b in zip(figures["h2d"], figures["iperf_up"], strict=True)],
        "d2h_over_iperf": [a / b for a, b in zip(figures["d2h"], figures["iperf_down"], strict=True)],
    }
    return {
        "link": options.link,
        "rate_gbps": options.rate_gbps,
        "delay_us": options.delay_us,
        "bytes": options.bytes,
        "rounds": options.rounds,
        "cores": os.cpu_count(),
        "load_1min": os.getloadavg()[0],
        "release": default_release(),
        "emulated": True,
        **{k: spread(v) for k, v in {**figures, **ratios}.items()},
    }


def printed(measure: Callable[[argparse.Namespace, Path], dict[str, Any]], options: argparse.Namespace) -> int:
    """Measure in a folder that goes afterwards, and print the figures, with --json as one document; the exit code."""
    try:
        with tempfile.TemporaryDirectory(prefix="eai-bench-") as folder:
            found = measure(options, Path(folder))
    except (BenchmarkError, OSError) as e:
        print(f"no figure: {e}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(found))
        return 0
    for name, value in found.items():
        if isinstance(value, dict):
            value = f"{value['median']:.3f} ({value['min']:.3f} to {value['max']:.3f})"
        print(f"{name:36} {value}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--link", choices=["loopback", "veth"], default="loopback")
    parser.add_argument("--rate-gbps", type=float)
    parser.add_argument("--delay-us", type=int, help="both directions together")
    parser.add_argument("--mtu", type=int, default=9000)
    parser.add_argument("--bytes", type=int, default=64 << 20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path, help="another checkout of this project")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.rate_gbps and options.link == "loopback":
        parser.error("--rate-gbps shapes a veth link")
    if options.delay_us and not options.rate_gbps:
        parser.error("--delay-us is of a link with --rate-gbps")
    return printed(measure, options)


if __name__ == "__main__":
    sys.exit(main())
