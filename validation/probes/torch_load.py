"""A network of the founding documents trained (or answering) by ordinary PyTorch, timed: what remoting is measured by.

    python torch_load.py --network resnet50 --batch 32,128 --steps 41 --every 10

It knows nothing of leases: natively it takes the GPU (or, with --processor, stands on the processor that stands in for
one), by `toolkit run` the leased one. Everything follows from the seed. The loss is read every so many steps, as a
program does that is not to wait each time; the time of a step is its share of what lies between two reads. Images are
sent as bytes and normalised on the device. Several GPUs share each batch, each with the whole network; gradients are
added by way of this machine's memory. One line of JSON for each batch size, like that of elastic-ai-train.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

if "validation.probes" not in sys.modules:  # a GPU server is given all as text (remoting_program)
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from validation.probes import torch_keep
from validation.probes import torch_networks as networks

TOOL = "torch_load"
KINDS = 4  # different batches, one after the other
#: Small enough that a network whose labels mean nothing goes on with numbers.
RATE, MOMENTUM, DECAY = 1e-3, 0.9, 1e-4


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Parsed command line."""
    parser = argparse.ArgumentParser(TOOL, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=sorted(networks.NETWORKS), default="resnet50")
    parser.add_argument("--batch", default="32", help="images of a step over all GPUs; several: one after the other")
    parser.add_argument("--steps", type=int, default=11)
    parser.add_argument("--every", type=int, default=1, help="the loss is read after each so many steps")
    parser.add_argument("--side", type=int, default=0, help="of an image, in pixels (default: as published)")
    parser.add_argument("--thin", type=int, default=1, help="1/THIN of all channels")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--infer", action="store_true", help="answers alone, each waited for")
    parser.add_argument("--processor", default="", metavar="UUID", help="of the emulated GPU whose place it takes")
    parser.add_argument("--wait", action="store_true", help="say when it is ready, and begin when a line comes in")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="a checkpoint, written when asked to end")
    parser.add_argument("--pace", type=int, default=0, metavar="MS", help="milliseconds that a step takes at least")
    parser.add_argument("--label", default="")
    return parser.parse_args(given)


class Load:
    """A network on its devices, and its data."""

    def __init__(self, options: argparse.Namespace, batch: int) -> None:
        """Seeded anew, so that each batch size begins alike."""
        self.options, self.batch = options, batch
        self.side = options.side or networks.NETWORKS[options.network].side
        places = ["cpu"] * options.gpus if options.processor else [f"cuda:{at}" for at in range(options.gpus)]
        self.devices = [torch.device(place) for place in places]
        self.far = not options.processor
        if self.far and torch.cuda.device_count() < options.gpus:
            raise SystemExit(f"{TOOL}: --gpus {options.gpus}: {torch.cuda.device_count()} visible here")
        if batch % options.gpus:
            raise SystemExit(f"{TOOL}: --batch {batch} is not a multiple of {options.gpus}")
        self.rows = batch // options.gpus
        torch.manual_seed(options.seed)
        torch.backends.cudnn.deterministic = True
        first = networks.build(options.network, options.thin)
        images = torch.Generator().manual_seed(options.seed)
        shape = (KINDS, batch, 3, self.side, self.side)
        self.images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=images)
        self.labels = torch.randint(0, networks.CLASSES, (KINDS, batch), generator=images)
        state = first.state_dict()
        self.nets = [first.to(self.devices[0])]
        for device in self.devices[1:]:
            more = networks.build(options.network, options.thin)
            more.load_state_dict(state)
            self.nets.append(more.to(device))
        for net in self.nets:
            net.train(not options.infer)
        torch.manual_seed(options.seed)  # dropout, whatever was drawn before
        self.optimisers = [
            torch.optim.SGD(net.parameters(), RATE, momentum=MOMENTUM, weight_decay=DECAY) for net in self.nets
        ]

    def _batch(self, number: int, at: int) -> tuple[torch.Tensor, torch.Tensor]:
        rows = slice(at * self.rows, (at + 1) * self.rows)
        device = self.devices[at]
        x = self.images[number % KINDS, rows].to(device, non_blocking=True).float().div_(127.5).sub_(1.0)
        return x, self.labels[number % KINDS, rows].to(device, non_blocking=True)

    def step(self, number: int) -> list[torch.Tensor]:
        """Trains by one batch; the summed loss on each device, not waited for."""
        losses = []
        for at, (net, optimiser) in enumerate(zip(self.nets, self.optimisers)):
            x, y = self._batch(number, at)
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y, reduction="sum")
            (loss / self.batch).backward()
            losses.append(loss.detach())
        if len(self.nets) > 1:
            self._add()
        for optimiser in self.optimisers:
            optimiser.step()
        return losses

    def _add(self) -> None:
        """Every device gets the sum of all gradients, by way of this machine's memory, always in the same order."""
        flat = [torch.cat([p.grad.reshape(-1) for p in net.parameters() if p.grad is not None]) for net in self.nets]
        total = torch.stack([one.cpu() for one in flat]).sum(0)
        for device, net in zip(self.devices, self.nets):
            mine, start = total.to(device), 0
            for p in net.parameters():
                if p.grad is not None:
                    p.grad.copy_(mine[start : start + p.numel()].view_as(p))
                    start += p.numel()

    def answer(self, number: int) -> torch.Tensor:
        """Answers of one batch, here."""
        with torch.no_grad():
            return torch.cat([net(self._batch(number, at)[0]).cpu() for at, net in enumerate(self.nets)])

    def weights(self) -> bytes:
        """All numbers of the first device's network, running means too."""
        parts = [value.detach().cpu().float().reshape(-1) for value in self.nets[0].state_dict().values()]
        data: bytes = torch.cat(parts).numpy().tobytes()
        return data

    def seen(self) -> list[dict[str, str]]:
        """Name and UUID of each device: what the lease says of it, PyTorch, or what a processor stands in for."""
        if self.options.processor:
            return [{"name": "processor", "uuid": uuid} for uuid in self.options.processor.split(",")]
        leased = json.loads(os.environ.get("ELASTIC_AI_GPUS") or "[]")
        told = [torch.cuda.get_device_properties(at) for at in range(self.options.gpus)]
        uuids = [one["uuid"] for one in leased] or [f"GPU-{one.uuid}" for one in told]
        return [{"name": one.name, "uuid": uuid} for one, uuid in zip(told, uuids)]

    def servers(self) -> list[dict[str, str]]:
        """Where its devices are, by the lease; none natively."""
        there = [one for one in os.environ.get("ELASTIC_AI_TORCH_SERVERS", "").split(",") if one] if self.far else []
        return [{"host": one} for one in dict.fromkeys(there)]


def code_of() -> str:
    """SHA-256 of program and networks."""
    own = globals().get("SOURCE") or Path(__file__).read_text(encoding="utf-8")
    of = getattr(networks, "SOURCE", "") or Path(str(networks.__file__)).read_text(encoding="utf-8")
    return hashlib.sha256((own + of).encode()).hexdigest()


def run(load: Load, opened_s: float) -> dict[str, Any]:
    """The document of one batch size."""
    options, keeper = load.options, torch_keep.Keeper(load.options.keep)
    losses = keeper.resume(load)
    resumed = len(losses)
    step_s: list[float] = []
    wait_s: list[float] = []
    answers, reads = b"", 0
    began_s = time.monotonic()
    waiting: list[list[torch.Tensor]] = []
    block = time.perf_counter()
    for number in range(resumed, options.steps):
        if keeper.told_s is not None and not waiting:  # a step that was taken has its loss read
            break
        if options.infer:
            answers = load.answer(number).numpy().tobytes()
            wait_s.append(0.0)
        else:
            waiting.append(load.step(number))
        # the first by itself: it pays for what is done once
        soon = number in (resumed, options.steps - 1) or keeper.told_s is not None
        if waiting and not soon and len(waiting) < options.every:
            continue
        if waiting:
            asked = time.perf_counter()
            sums = [torch.stack(on_one).cpu() for on_one in zip(*waiting)]
            wait_s += [(time.perf_counter() - asked) / len(waiting)] * len(waiting)
            losses += (torch.stack(sums).sum(0) / load.batch).tolist()
            if number == resumed:  # whoever waits for this program's first step reads that
                print(f"{number} {losses[-1]:.9f}", file=sys.stderr, flush=True)
        reads += 1
        count, now = max(1, len(waiting)), time.perf_counter()
        step_s += [(now - block) / count] * count
        waiting, block = [], now
        if options.pace and number + 1 < options.steps:
            keeper.rest(options.pace / 1e3 - step_s[-1])
            block = time.perf_counter()
    kept, weights_sha256 = keeper.save(load, losses), hashlib.sha256(load.weights()).hexdigest()
    ended_s = time.monotonic()  # it asks nothing more of its devices
    counted = len(step_s) if options.infer else len(losses)
    timed = step_s[1:] or step_s
    emulated = bool(options.processor) or any(
        one.get("emulated") for one in json.loads(os.environ.get("ELASTIC_AI_GPUS") or "[]")
    )
    image = 3 * load.side**2
    return {
        "tool": TOOL, "label": options.label, "host": os.uname().nodename, "emulated": emulated,
        "torch": torch.__version__, "threads": torch.get_num_threads(),
        "devices": load.seen(), "servers": load.servers(), "gpus": options.gpus, "infer": options.infer,
        "network": options.network, "side": load.side, "thin": options.thin, "every": options.every,
        "steps": counted, "planned_steps": options.steps, "batch": load.batch, "inputs": image,
        "hidden": networks.Thin(options.thin).of(64), "classes": networks.CLASSES, "seed": options.seed,
        "weights": sum(p.numel() for p in load.nets[0].parameters()), "code_sha256": code_of(),
        "losses": losses, "weights_sha256": weights_sha256,
        "answers_sha256": hashlib.sha256(answers).hexdigest() if options.infer else "",
        "images_per_s": load.batch * len(timed) / sum(timed) if timed else 0.0,
        "opened_s": opened_s, "began_s": began_s, "ended_s": ended_s, "step_s": step_s, "wait_s": wait_s,
        "resumed_from": resumed, "told_s": keeper.told_s, "told_by": keeper.told_by, "kept": kept,
        # what the program itself asks for; how many operators that is, the engine knows
        "launches": 0, "bytes_to_devices": len(step_s) * load.batch * (image + 8),
        "bytes_from_devices": len(answers) * len(step_s) if options.infer else 4 * len(step_s) * options.gpus,
        "synchronisations": reads,
    }  # fmt: skip


def main(given: list[str] | None = None) -> int:
    """Run it; the exit code."""
    options, opened_s = arguments(given), time.monotonic()
    for at, batch in enumerate(options.batch.split(",")):
        load = Load(options, int(batch))
        if options.wait and not at:
            load.nets[0].to(load.devices[0])
            print(json.dumps({"ready": True}), flush=True)
            if not sys.stdin.readline():
                return 2
        document = run(load, opened_s)
        print(json.dumps(document), flush=True)
        if document["told_s"] is not None and document["steps"] < options.steps:
            return torch_keep.TOLD
    return 0


if __name__ == "__main__":
    sys.exit(main())
