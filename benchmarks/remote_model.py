"""The model of remoting against what is measured: one training natively and by the reference engine over links.

    benchmarks/remote_model.py [--links loopback,GBPS/MS,...] [--batches 8,32,128] [--inputs 784] [--hidden 64]
                               [--steps 60] [--turns 3] [--all-turns] [--computes] [--spaces] [--json]

The links are the toolkit's relay on loopback (engine/relay.c), which delays and limits a TCP stream each way;
with --spaces (root) cables between network namespaces, as `toolkit validate --here --suite remoting` makes them: the
rate is the kernel's (tbf), the delay netem's where the kernel has it, else the relay's. The GPU is an emulated one.
Its kernels would run on the processors that all of this shares, which no GPU's do: so products of matrices wait for
as long as they have multiplications, at a stated rate, and compute nothing (--computes: they compute). Both ways of
each batch take turns; of each way's turns the one counts that was disturbed least, whose step in the middle is the
shortest, and of its calls' costs the least of all turns (--all-turns: all of them, as in a
validation). Native step, counts and costs of calls are what elastic-ai-
train tells (--costs), what is predicted of them is the report's own arithmetic.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.engine_run import Client, built, describe, local, server  # noqa: E402
from tests.support.relay import relay  # noqa: E402
from toolkit.engine.host_modules import archive  # noqa: E402
from toolkit.engine.local_build import compile_relay  # noqa: E402
from toolkit.lease.programs.train import CODE  # noqa: E402
from validation.analysis.remote_model import WITHIN  # noqa: E402
from validation.measures.remoting.model import KINDS, Explained, advice, explained  # noqa: E402
from validation.measures.remoting.remoting_link_probe import serving  # noqa: E402
from validation.measures.remoting.remoting_train_probe import order  # noqa: E402
from validation.measures.remoting.train import (  # noqa: E402
    CallCosts,
    RemoteTrainFacts,
    TrainRun,
    parse,
)
from validation.probes.shaped_link import Link, NoLink, looked, new_network  # noqa: E402

TERMS = ("native", "synchronisations", "copies", "launches")
LINKS = "loopback,0/0.5,0/2,10/0,10/0.5,10/2,1/0,1/0.5,1/2"


NS = 0.5
"""A multiplication of the device that waits."""
LOOP = "    for (unsigned k = 0; k < depth; k++) sum += a[i * a_row + k * a_step] * b[k * b_step + j * b_column];\n"
WAIT = f"""    if (i || j) return;
    long ns = (long)({NS} * rows * columns * depth);
    timespec until = {{ns / 1000000000, ns % 1000000000}};
    nanosleep(&until, nullptr);
"""


def waiting(folder: Path) -> Path:
    """The program's PTX, with a host module whose products of matrices wait."""
    text = CODE.with_suffix(".cu").read_text()
    if LOOP not in text:
        raise ValueError("train.cu has no such product of matrices any more")
    source, code = folder / "waiting.cu", folder / "waiting.ptx"
    source.write_text("#include <time.h>\n" + text.replace(LOOP, WAIT))
    code.write_bytes(archive(source, CODE.read_bytes()))
    return code


def job(client: Client, options: argparse.Namespace, batch: str) -> str:
    """What elastic-ai-train prints."""
    words = [sys.executable, "-m", "toolkit.lease.programs.train", "--json", "--costs", "--gpus", "1", "--batch", batch]
    words += ["--steps", str(options.steps), "--inputs", str(options.inputs), "--hidden", str(options.hidden)]
    words += ["--code", str(options.code)] if options.code else []
    return subprocess.run(words, env=client.environment(), capture_output=True, text=True, check=True).stdout


@contextmanager
def reached(link: str, options: argparse.Namespace, folder: Path, devices: dict[str, str]) -> Iterator[str]:
    """Address and port of a server behind a link."""
    gbps, delay_ms = (0.0, 0.0) if link == "loopback" else map(float, link.split("/"))
    if options.spaces and (gbps or delay_ms):
        made = Link(gbps, delay_ms * 1e3, "tbf" if gbps else "", options.delay_by if delay_ms else "")
        if made.spaces:
            new_network()
        os.environ |= {**devices, "LD_LIBRARY_PATH": str(built() / "devices")}
        secret = Client("", folder).environment()["ELASTIC_AI_TOKEN_FILE"]
        compile_relay(built() / "bin")
        with serving(built(), made, secret) as (address, port):
            yield f"{address}:{port}"
        return
    with server(folder / "server", devices=devices) as there:
        if link == "loopback":
            yield f"127.0.0.1:{there.port}"
            return
        with relay(there.port, gbps, delay_ms) as other:
            yield f"127.0.0.1:{other}"


def apart(link: str, options: argparse.Namespace, folder: Path, devices: dict[str, str]) -> RemoteTrainFacts:
    """The same in a process of its own, which may enter a network of its own. RuntimeError where it fails."""
    built()  # before the processes part: each would build its own
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            said = over(link, options, folder, devices).model_dump_json()
            with os.fdopen(write, "w") as out:
                out.write(said)
            code = 0
        except (NoLink, ValueError, subprocess.CalledProcessError) as fault:
            print(f"{link}: {getattr(fault, 'stderr', None) or fault}", file=sys.stderr)
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read) as said_by:
        said = said_by.read()
    if os.waitpid(child, 0)[1]:
        raise RuntimeError(f"no figure over {link}")
    return RemoteTrainFacts.model_validate_json(said)


def over(link: str, options: argparse.Namespace, folder: Path, devices: dict[str, str]) -> RemoteTrainFacts:
    """Facts of a training in turns, by the parser of the measurement in a validation."""
    lines = []
    with reached(link, options, folder, devices) as at:
        ways = {"native": local(folder, devices), "remote": Client(at, folder)}
        for turn in range(1, options.turns + 1):
            for batch in options.batches:
                for way in order(turn):
                    said = job(ways[way], options, batch)
                    lines.append(f"== turn {turn} of {options.turns}: {way} {batch}\n{said.strip()}\n")
    facts = {"server": "here", "emulated": True, "engine": "reference", "engine_release": "test"}
    document: Any = {"stdout": "".join(lines), "facts": facts}
    params = {"server": "here", "batches": tuple(options.batches), "turns": options.turns, "steps": options.steps}
    _, found = parse(document, {**params, "inputs": options.inputs, "hidden": options.hidden})
    if not isinstance(found, RemoteTrainFacts):
        raise TypeError("the training has no facts")
    return found


def least_disturbed(facts: RemoteTrainFacts) -> RemoteTrainFacts:
    """The same, with the fastest turn of each way and batch alone, and of its calls' costs the least of all turns, each
    kind by itself: they are measured behind the steps, when something else may disturb them.
    """
    best: dict[tuple[str, int], TrainRun] = {}
    least: dict[tuple[str, int], CallCosts] = {}
    for run in facts.runs:
        key, told = (run.way, run.batch), run.costs
        if key not in best or median(run.images_per_s) > median(best[key].images_per_s):
            best[key] = run
        if told is not None:
            other = least.get(key, told)
            both = {kind: min(getattr(told, f"{kind}_us"), getattr(other, f"{kind}_us")) for kind in KINDS}
            least[key] = told.model_copy(update={f"{kind}_us": value for kind, value in both.items()})
    runs = tuple(run.model_copy(update={"costs": least.get(key)}) for key, run in best.items())
    return facts.model_copy(update={"runs": runs})


def rows(link: str, facts: RemoteTrainFacts) -> list[dict[str, Any]]:
    """Of each batch."""
    made = []
    for batch, one in explained(facts).items():
        if not isinstance(one, Explained):
            raise ValueError(one)
        terms = {key: getattr(one.prediction, key) * 1e6 for key in TERMS}
        row = {"link": link, "batch": batch, "predicted": one.prediction.ratio, "measured": one.measured}
        row |= {"difference": one.difference, "same": not facts.differing(), "helps": advice(one)}
        made.append(row | {f"{key}_us": value for key, value in terms.items()})
    return made


def main() -> int:
    """Print the table; 1 where a program failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--links", default=LINKS, help=f"GBPS/MS one way, 0 Gbit/s: no limit (default {LINKS})")
    parser.add_argument("--batches", default="8,32,128")
    parser.add_argument("--inputs", type=int, default=784)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--computes", action="store_true")
    parser.add_argument("--all-turns", action="store_true")
    parser.add_argument("--spaces", action="store_true", help="cables between network namespaces; root")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.batches = options.batches.split(",")
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="eai-bench-") as name:
        folder = Path(name)
        devices = describe(folder)
        options.code = None if options.computes else waiting(folder)
        options.delay_by = looked()["delay_by"] if options.spaces else "relay"
        for link in options.links.split(","):
            try:
                facts = apart(link, options, folder, devices)
                mine = rows(link, facts if options.all_turns else least_disturbed(facts))
            except RuntimeError as fault:
                print(fault, file=sys.stderr)
                return 1
            found += mine
            for row in mine if not options.json else []:
                terms = " + ".join(f"{row[f'{k}_us']:.0f}" for k in TERMS)
                ratios = f"{row['predicted']:.3f} | {row['measured']:.3f} | {row['difference']:+.1%}"
                print(f"| {link} | {row['batch']} | {terms} | {ratios} | {row['helps']} |", flush=True)
    beyond = [row for row in found if abs(row["difference"]) > WITHIN]
    about = {"cores": os.cpu_count(), "load_1min": os.getloadavg()[0], "emulated": True, "beyond": len(beyond)}
    about |= {"of": len(found), "delay_by": options.delay_by}
    print(json.dumps({**about, "rows": found} if options.json else about))
    return 0


if __name__ == "__main__":
    sys.exit(main())
