"""Looks on while a long training runs: a line whenever it got on, on the way to hours without a word."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from toolkit.progress import duration
from validation.base.errors import ToolkitError
from validation.execute import Launcher
from validation.model import Call, Measurement, Plan
from validation.model.load import read_results
from validation.run.names import RESULTS

KIND = "training-long"
EVERY_S = 15.0
DEADLINE_S = 30.0


def words(told: dict[str, Any]) -> str:
    """`epoch 3 of 90, step 120 of 1251, 4850 images/s, loss 3.21, left 5h12m`; "" where it does not tell."""
    try:
        predicted = told["predicted"]
        rate = float(told["images_per_s"])
        said = f"epoch {told['epoch']} of {told['epochs']}, step {told['step']} of {told['steps']}"
        if told["loss"] is not None:
            said += f", loss {told['loss']:.3g}"
        last = told["last"]
        if last:
            said += f", validation top-1 {last['val_top1']:.1%} and top-5 {last['val_top5']:.1%} after {last['epoch']}"
        if rate > 0 and predicted:
            left = (told["epochs"] - told["epoch"] + 1) * told["steps"] - told["step"]
            left_s = left * predicted["step_s"] * predicted["images_per_s"] / rate
            said += f", {rate:.4g} images/s, about {duration(left_s)} left"
        return said
    except (KeyError, TypeError, ValueError):
        return ""


async def _look(launcher: Launcher, m: Measurement) -> dict[str, Any]:
    hosts = m.params["hosts"]
    node = hosts[0] if isinstance(hosts, tuple) else m.nodes[0]
    asked = Call(probe="training-progress", params={"checkpoints": m.params["checkpoints"]})
    remote = await launcher.start(node, ["--deadline-s", f"{DEADLINE_S:g}", *asked.words])
    try:
        output = await remote.finish()
    finally:
        if not remote.ended:
            await remote.stop()
    found = [one["facts"] for one in output.documents() if isinstance(one.get("facts"), dict)]
    return found[-1] if found else {}


async def _watch(
    launcher: Launcher, run_dir: Path, plan: Plan, m: Measurement, say: Callable[[str], None], every_s: float
) -> None:
    before = {id_ for ids in plan.rounds[: _round(plan, m)] for id_ in ids}
    seen: tuple[Any, ...] = ()
    began = None
    while True:
        await asyncio.sleep(every_s)
        with contextlib.suppress(OSError, ToolkitError):  # whoever only looks on ends nothing
            written = (run_dir / RESULTS).exists()
            done = {result.measurement for result in read_results(run_dir / RESULTS, plan.run)[0]} if written else set()
            if m.id in done:
                return
            if not before <= done:  # others are being measured, and want their nodes for themselves
                continue
            told = await _look(launcher, m)
            began = told.get("written") if began is None else began
            now = (told.get("epoch"), told.get("step"))
            # what lies there from before says nothing of this training
            if told.get("written") != began and now != seen and (said := words(told)):
                seen = now
                say(f"{m.id}: {said}")


def _round(plan: Plan, m: Measurement) -> int:
    return next(at for at, ids in enumerate(plan.rounds) if m.id in ids)


@contextlib.asynccontextmanager
async def telling_of_training(
    launcher: Launcher, run_dir: Path, plan: Plan, say: Callable[[str], None], every_s: float = EVERY_S
) -> AsyncIterator[None]:
    """While the plan is measured; `say` gets a line every so often where it has a long training."""
    tasks = [
        asyncio.ensure_future(_watch(launcher, run_dir, plan, m, say, every_s))
        for m in plan.measurements
        if m.kind == KIND and m.params["checkpoints"]  # one that keeps none tells nothing on its way
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
