"""A network of the founding documents trained (or answering) by ordinary PyTorch, timed: what remoting is measured by.

    python torch_load.py --network resnet50 --batch 32,128 --steps 41 --every 10

It knows nothing of leases: natively it takes the GPU (or, with --processor, stands on the processor that stands in for
one), by `toolkit run` the leased one. Everything follows from the seed; steps and times are load_run's. Images are sent
as bytes and normalised on the device. Several GPUs share each batch, each with the whole network; gradients are added
by way of this machine's memory. One line of JSON for each batch size, like that of elastic-ai-train.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

if "validation.probes" not in sys.modules:  # a GPU server is given all as text (remoting_program)
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from validation.probes import load_run
from validation.probes import torch_networks as networks
from validation.probes.load_run import DECAY, KINDS, MOMENTUM, RATE

TOOL = "torch_load"


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """Parsed command line."""
    parser = load_run.parser_of("torch", TOOL, __doc__, networks)
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--infer", action="store_true", help="answers alone, each waited for")
    parser.add_argument("--wait", action="store_true", help="say when it is ready, and begin when a line comes in")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="a checkpoint, written when asked to end")
    parser.add_argument("--pace", type=int, metavar="MS", help="milliseconds that a step takes at least")
    return parser.parse_args(given)


class Load:
    """A network on its devices, and its data."""

    tool, known = TOOL, networks
    source: str = globals().get("SOURCE") or Path(__file__).read_text(encoding="utf-8")

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

    def read(self, waiting: list[list[torch.Tensor]]) -> list[float]:
        """The mean losses of these steps."""
        sums = [torch.stack(on_one).cpu() for on_one in zip(*waiting)]
        means: list[float] = (torch.stack(sums).sum(0) / self.batch).tolist()
        return means

    def answer(self, number: int) -> bytes:
        """Answers of one batch, here."""
        with torch.no_grad():
            each = [net(self._batch(number, at)[0]).cpu() for at, net in enumerate(self.nets)]
        found: bytes = torch.cat(each).numpy().tobytes()
        return found

    def restore(self, path: Path) -> list[float]:
        """Network, optimiser and random generators of a checkpoint; its losses."""
        kept = torch.load(path, map_location="cpu", weights_only=True)
        for device, net, optimiser in zip(self.devices, self.nets, self.optimisers):
            net.load_state_dict(kept["network"])
            optimiser.load_state_dict(kept["optimiser"])
            net.to(device)
        torch.set_rng_state(kept["random"])
        if self.far and kept["random_there"] is not None:
            torch.cuda.set_rng_state(kept["random_there"])
        return list(kept["losses"])

    def write(self, path: Path, losses: list[float]) -> None:
        """As any PyTorch program keeps its work."""
        kept = {
            "network": {key: value.cpu() for key, value in self.nets[0].state_dict().items()},
            "optimiser": self.optimisers[0].state_dict(),
            "losses": losses,
            "random": torch.get_rng_state(),
            "random_there": torch.cuda.get_rng_state() if self.far else None,
        }
        torch.save(kept, path)

    def weights(self) -> bytes:
        """All numbers of the first device's network, running means too."""
        parts = [value.detach().cpu().float().reshape(-1) for value in self.nets[0].state_dict().values()]
        data: bytes = torch.cat(parts).numpy().tobytes()
        return data

    def count(self) -> int:
        """Numbers that are learned."""
        return sum(p.numel() for p in self.nets[0].parameters())

    def about(self) -> dict[str, Any]:
        """What computed."""
        return {"torch": torch.__version__, "threads": torch.get_num_threads()}

    def seen(self) -> list[dict[str, str]]:
        """Name and UUID of each device: what the lease says of it, PyTorch, or what a processor stands in for."""
        if self.options.processor:
            return [{"name": "processor", "uuid": uuid} for uuid in self.options.processor.split(",")]
        told = [torch.cuda.get_device_properties(at) for at in range(self.options.gpus)]
        uuids = [one["uuid"] for one in load_run.leased()] or [f"GPU-{one.uuid}" for one in told]
        return [{"name": one.name, "uuid": uuid} for one, uuid in zip(told, uuids)]

    def servers(self) -> list[dict[str, str]]:
        """Where its devices are, by the lease; none natively."""
        return load_run.servers_in("ELASTIC_AI_TORCH_SERVERS") if self.far else []


if __name__ == "__main__":
    sys.exit(load_run.main(Load, arguments()))
