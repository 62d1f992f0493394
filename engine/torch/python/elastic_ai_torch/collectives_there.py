"""Collectives among the servers of the lease: a message to each rank's own, and the bytes go from server to server."""

from __future__ import annotations

import json
import secrets
import warnings
from datetime import timedelta
from typing import Any

import torch

from elastic_ai_torch.client import Client
from elastic_ai_torch.collective import Collective


def meet(
    client: Client, store: Any, rank: int, size: int, timeout: timedelta, first: Collective
) -> CollectivesThere | None:
    """The ranks' sessions as a group; None where one of the lease's servers does not know the others, or does not
    reach them: then all ranks go by this machine. By the store of torch's launcher they tell each other nothing but
    numbers that their servers gave them, and why they could not meet."""
    tensors = [*first.outputs, *first.inputs]
    device = tensors[0].device.index if tensors else torch.cuda.current_device()
    own = client.library.member(device)
    store.set(f"elastic-ai-member-{rank}", json.dumps([own, secrets.token_hex(16)]))
    told = [json.loads(store.get(f"elastic-ai-member-{other}")) for other in range(size)]
    if not all(member for member, _ in told):
        return None
    request = {
        "rank": rank,
        "members": [json.loads(member) for member, _ in told],
        "name": told[0][1],
        "timeout_s": timeout.total_seconds(),
    }
    group, why = 0, ""
    try:
        group = client.library.join(device, json.dumps(request))
    except RuntimeError as fault:
        why = str(fault).splitlines()[0]
    store.set(f"elastic-ai-joined-{rank}", why)
    failed = [words for other in range(size) if (words := store.get(f"elastic-ai-joined-{other}").decode())]
    if not failed:
        return CollectivesThere(client, device, group)
    if not why:
        client.library.leave(device, group)
    if rank == 0:
        warnings.warn(f"collectives go by this machine: {failed[0]}", RuntimeWarning, stacklevel=2)
    return None


class CollectivesThere:
    """Of one group, by the session of one device."""

    def __init__(self, client: Client, device: int, group: int) -> None:
        """The group is joined."""
        self._client, self._device, self._group = client, device, group

    def start(self, one: Collective) -> Any:
        """Begun when it returns; what the program asks of the device after it waited for the future comes after it."""
        plain = one.plain()
        work = torch.ops.elastic_ai.collective(
            plain.outputs, plain.inputs, self._device, self._group, plain.name, plain.operation, plain.root, plain.tag,
            *plain.sizes,
        )  # fmt: skip
        future = torch.futures.Future(devices=[torch.device("cuda", self._device)])
        self._client.library.work_stream(self._device, work)
        try:
            future.set_result(one.outputs or one.inputs or [torch.empty(0, device=f"cuda:{self._device}")])
        finally:
            self._client.library.work_stream(self._device, 0)
        return future

    def close(self) -> None:
        """Leave it, unless the server has gone before."""
        try:
            self._client.library.leave(self._device, self._group)
        except RuntimeError:
            return
