"""What init_process_group and fully_shard set of the process group "nccl"."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class Options:
    """Kept, and without meaning here: the servers have their own."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        """As torch's own."""
        self.is_high_priority_stream = is_high_priority_stream
        self._timeout: Any = None
        self.global_ranks_in_group: list[int] = []
        self.group_name = ""
        self.config: Any = SimpleNamespace()
        self.split_from: Any = None
        self.split_color = 0
