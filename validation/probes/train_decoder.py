"""The training program of training_decoder: a decoder of our own code, data-parallel, one process a rank.

DDP keeps all parameters on each rank, FSDP (torch's fully_shard) divides them. On GPUs in bf16 with float32 parameters;
on processors in fp32. Weights and tokens follow from whole numbers alone, so that they are the same on every machine
and for any number of ranks: the loss of a step is that of the batch of all ranks, and can be held against a recorded
one. A token follows from the last by a rule, but for one in eight, so that there is something to learn.

Rank 0 prints one line of JSON, with `cannot` where the job could not be measured.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import socket
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # python -I leaves out where the probes are

from validation.probes import gpu_watch, train_trace
from validation.probes.train_cnn import CannotTrain, Device, Products, no_memory, say_who
from validation.probes.train_decoders import DECODERS, TINY, Decoder
from validation.probes.train_world import Alone, about, agree, begin_rank, join, leave, parser_of, sums_of

MASK = 0xFFFFFFFF
RULE = 5, 17  # of tokens: 5 x + 17 modulo LEARNED
LEARNED = 256  # tokens that occur, whatever the vocabulary
TRACED = {True: 3, False: 1}


def mixed(torch: Any, numbers: Any, seed: int) -> Any:
    """Whole numbers below 2^32 that look random, by whole-number arithmetic alone."""
    found = (numbers * 2654435761 + seed * 40503 + 1) & MASK
    for _ in range(2):
        found = ((found ^ (found >> 16)) * 0x45D9F3B) & MASK
    return found ^ (found >> 16)


def spread(torch: Any, shape: Any, seed: int, scale: float, at: Any) -> Any:
    """Weights, even between -scale and scale times the root of 3, to 24 bits: the same on every device."""
    count = math.prod(shape)
    flat = torch.empty(count, device=at)
    for first in range(0, count, 1 << 24):
        numbers = torch.arange(first, min(count, first + (1 << 24)), dtype=torch.int64, device=at)
        flat[first : first + numbers.numel()] = (mixed(torch, numbers, seed) >> 8).to(torch.float32)
    return ((flat / (1 << 23) - 1) * (scale * math.sqrt(3))).reshape(shape)


def tokens(torch: Any, sequences: Any, length: int, step: int) -> Any:
    """Of each sequence `length` + 1 tokens; sequences are numbered over all ranks."""
    now = mixed(torch, sequences, 2 * step) % LEARNED
    rows = [now]
    for position in range(length):
        dice = mixed(torch, sequences * 65537 + position, 2 * step + 1)
        now = torch.where(dice % 8 == 0, (dice >> 8) % LEARNED, (now * RULE[0] + RULE[1]) % LEARNED)
        rows.append(now)
    return torch.stack(rows, 1)


def build(torch: Any, shape: Decoder, at: Any, again: bool) -> Any:
    """The network; `again`: what a layer kept is computed again on the way back, which saves memory."""
    nn, functional = torch.nn, torch.nn.functional
    each = shape.width // shape.heads

    class Norm(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(shape.width, device=at))

        def forward(self, x: Any) -> Any:
            wide = x.float()
            return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight

    def linear(inner: int, outer: int) -> Any:
        return nn.Linear(inner, outer, bias=False, device=at)

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Norm(), Norm()
            self.query, self.out = linear(shape.width, shape.width), linear(shape.width, shape.width)
            self.key, self.value = (linear(shape.width, each * shape.key_heads) for _ in range(2))
            self.gate, self.up = (linear(shape.width, shape.inner) for _ in range(2))
            self.down = linear(shape.inner, shape.width)

        def forward(self, x: Any, turn: Any) -> Any:
            y = self.first(x)
            count, length, _ = y.shape
            query, key, value = (
                made(y).view(count, length, -1, each).transpose(1, 2) for made in (self.query, self.key, self.value)
            )
            query, key = rotated(query, turn), rotated(key, turn)
            key, value = (one.repeat_interleave(shape.heads // shape.key_heads, 1) for one in (key, value))
            seen = attention(query, key, value.to(query.dtype))
            x = x + self.out(seen.transpose(1, 2).reshape(count, length, shape.width))
            y = self.second(x)
            return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    def rotated(x: Any, turn: Any) -> Any:
        half = x.shape[-1] // 2
        left, right = x[..., :half].float(), x[..., half:].float()
        cos, sin = turn
        return torch.cat((left * cos - right * sin, left * sin + right * cos), -1).to(x.dtype)

    def attention(query: Any, key: Any, value: Any) -> Any:
        if hasattr(functional, "scaled_dot_product_attention"):
            return functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        score = query @ key.transpose(-2, -1) / math.sqrt(each)  # torch before 2.0
        later = torch.ones(score.shape[-2:], dtype=torch.bool, device=score.device).triu(1)
        return score.masked_fill(later, float("-inf")).softmax(-1) @ value

    class Model(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(shape.vocabulary, shape.width, device=at)
            self.blocks = nn.ModuleList([Block() for _ in range(shape.layers)])
            self.norm, self.head = Norm(), linear(shape.width, shape.vocabulary)

        def forward(self, given: Any) -> Any:
            x = self.table(given)
            where = torch.arange(given.shape[1], device=given.device).float()
            speed = 10000.0 ** (-torch.arange(each // 2, device=given.device).float() / (each // 2))
            angle = where[:, None] * speed[None, :]
            turn = angle.cos(), angle.sin()
            for block in self.blocks:
                if again:
                    kept = importlib.import_module("torch.utils.checkpoint")
                    x = kept.checkpoint(block, x, turn, use_reentrant=False)
                else:
                    x = block(x, turn)
            return self.head(self.norm(x))

    model = Model()
    with torch.no_grad():
        for seed, (name, weight) in enumerate(model.named_parameters(), 1):
            if weight.dim() > 1:
                deep = math.sqrt(2 * shape.layers) if name.endswith(("out.weight", "down.weight")) else 1.0
                weight.copy_(spread(torch, weight.shape, seed, 0.02 / deep if shape.layers > 2 else 0.05, at))
    return model


def divided(torch: Any, model: Any, world: Any, cuda: bool) -> None:
    """FSDP: each rank keeps its part of every layer. CannotTrain where this torch does not have it."""
    try:
        fsdp: Any = importlib.import_module("torch.distributed.fsdp")
        mesh: Any = importlib.import_module("torch.distributed.device_mesh").DeviceMesh
        shard, policy = fsdp.fully_shard, fsdp.MixedPrecisionPolicy
    except (ImportError, AttributeError, ValueError):  # of 1.13 with Python 3.11 the import itself is a ValueError
        raise CannotTrain(f"torch {torch.__version__} has no fully_shard; 2.6 or later has") from None
    over = mesh.from_group(world.group, "cuda" if cuda else "cpu")
    how = policy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if cuda else policy()
    for block in model.blocks:
        shard(block, mesh=over, mp_policy=how)
    shard(model, mesh=over, mp_policy=how)


class Training:
    """A decoder and everything that a step needs."""

    def __init__(self, torch: Any, world: Any, device: Device, at: Any, args: Any) -> None:
        """All of it on this rank's device, and the tokens of all steps."""
        self.torch, self.world, self.device, self.args = torch, world, device, args
        self.shape = DECODERS[args.model]
        world.start(torch, at)
        self.model = build(torch, self.shape, at, again=self.shape.sharded)
        self.count = sum(one.numel() for one in self.model.parameters())
        if args.sharding == "fsdp" and world.size > 1:
            divided(torch, self.model, world, device.cuda)
        beta = {"lr": self.shape.rate, "betas": (0.9, 0.95), "weight_decay": 0.1}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), **beta)
        if args.sharding == "ddp":
            self.model, self.optimizer = world.wrap(torch, self.model, self.optimizer)
        mine = torch.arange(world.rank * args.batch, (world.rank + 1) * args.batch, dtype=torch.int64)
        total = args.warmup + args.steps + TRACED[device.cuda]
        self.given = [tokens(torch, mine, self.shape.context, step).to(at) for step in range(total)]
        self.at = 0

    def step(self) -> tuple[float, list[float]]:
        """Loss, and seconds: the whole step, and of DDP the wait for the average of gradients."""
        torch, clock = self.torch, self.world.clock
        given = self.given[self.at]
        self.at += 1
        begin = time.perf_counter()
        self.optimizer.zero_grad()
        with contextlib.nullcontext() if self.args.sharding == "fsdp" else self.device.autocast():
            made = self.model(given[:, :-1])
        loss = torch.nn.functional.cross_entropy(made.float().flatten(0, 1), given[:, 1:].flatten())
        if self.args.sharding == "ddp":
            done, averaged = self.world.backward(loss, self.optimizer)
        else:
            loss.backward()
            done = averaged = clock.now()
        self.optimizer.step()
        value = float(loss.item())
        if self.device.cuda:
            torch.cuda.synchronize()
        return value, [time.perf_counter() - begin, clock.between(done, averaged)]


def prepared(args: Any, torch: Any, world: Alone) -> tuple[Training | None, dict[str, Any]]:
    """What is ready on every rank, or why one of them cannot, which all of them learn."""
    training, why, words = None, "", ""
    try:
        device = Device(torch, world, args)
        at = device.settle(world)
        words = device.words
        training = Training(torch, world, device, at, args)
    except CannotTrain as fault:
        why = str(fault)
    except RuntimeError as fault:
        if not no_memory(torch, fault):
            raise
        why = f"out of memory: {args.model} with a batch of {args.batch} does not fit on {words}"
    said = [text for text in world.texts(torch, why) if text]
    found: dict[str, Any] = {"devices": world.texts(torch, words), "cannot": said[0] if said else ""}
    if training is not None and training.device.cuda and not said:
        held = training.device.watch.who["others"] if training.device.watch else {}
        found["others"] = world.gather(torch, [float(len(held)), float(sum(held.values()))])
        found["tf32"] = training.device.rounds_to_tf32(at)
    return training, found


def train(args: Any, torch: Any, world: Alone) -> dict[str, Any]:
    """Run all steps on this rank and gather what the ranks measured."""
    shape = DECODERS[args.model]
    training, found = prepared(args, torch, world)
    told = {
        **about(args, torch, world), "hosts": world.texts(torch, socket.gethostname()), "warmup": args.warmup,
        "steps": args.steps, "sharding": args.sharding, "context": shape.context, "parameters": shape.parameters,
        "flops_per_token": shape.flops, **found,
    }  # fmt: skip
    if told["cannot"] or training is None:
        return told
    losses, seconds = [], []
    watch, products = training.device.watch, Products(torch, training.model)
    with watch or contextlib.nullcontext():
        for number in range(args.warmup + args.steps):
            loss, times = training.step()
            if number == 0:
                told["products"] = products.end()
            losses.append(loss)
            seconds.append(times)
    seen = {"watch": gpu_watch.of_ranks(watch, world, torch)} if watch is not None else {}
    every = world.gather(torch, [part for times in seconds[args.warmup :] for part in times])
    slowest = [max(times) for times in zip(*(row[0::2] for row in every))]
    waits = [sum(times) / world.size for times in zip(*(row[1::2] for row in every))]
    mean = [sum(values) / world.size for values in zip(*world.gather(torch, losses))]
    cuda = training.device.cuda
    trace = train_trace.record(torch, training.step, TRACED[cuda], cuda, world.rank == 0)
    shares = train_trace.shares(trace) if world.size > 1 else []
    if world.size > 1 and not cuda and args.sharding == "ddp":
        shares = [round(wait / step, 5) for wait, step in zip(waits, slowest)]
    counted = world.gather(torch, [float(training.count)])
    whole = args.sharding == "ddp"  # each rank has all parameters, which are the same on all
    same = {"ranks_agree": agree(torch, world, sums_of(training.model.parameters()))} if whole else {}
    return {
        **told, **seen, **same, "counted": int(counted[0][0]),
        "step_s": [round(s, 6) for s in slowest],
        "tokens_per_s": [round(args.batch * world.size * shape.context / s, 3) for s in slowest],
        "collective_share": shares, "collective_by": ("kernels" if cuda else "waits") if shares else "",
        "losses": [round(value, 6) if math.isfinite(value) else None for value in mean],
        "loss_finite": all(map(math.isfinite, mean)),
    }  # fmt: skip


def main() -> None:
    """One rank."""
    parser = parser_of(__doc__, DECODERS, TINY)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--sharding", choices=("ddp", "fsdp"), default="ddp")
    args = parser.parse_args()
    torch = begin_rank(args)
    world = join(torch, args.framework, args.meet, args.time_limit_s)
    say_who(world)
    report = train(args, torch, world)
    if world.rank == 0:
        print(json.dumps(report), flush=True)
    leave(world)


if __name__ == "__main__":
    main()
