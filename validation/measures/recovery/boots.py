"""What a node says after a boot, and what is other than after another one."""

from __future__ import annotations

from validation.model.base import Model
from validation.model.facts import Name, Positive


class Reading(Model):
    """What a node says after a boot: links as `fab0 1`, GPUs by uuid, mounts, failed units of systemd."""

    boot: Name
    system: str
    link: tuple[str, ...]
    gpu: tuple[str, ...]
    mount: tuple[str, ...]
    failed: tuple[str, ...]

    def other(self, before: Reading) -> list[str]:
        """What is not as it was before, in words."""
        odd = []
        for name, mine, theirs in (
            ("link", self.link, before.link), ("GPU", self.gpu, before.gpu), ("mount", self.mount, before.mount),
            ("failed unit", self.failed, before.failed),
        ):  # fmt: skip
            odd += [f"{name} {one} is gone" for one in theirs if one not in mine]
            odd += [f"{name} {one} is new" for one in mine if one not in theirs]
        return odd


class Boot(Model):
    """One of them, and after how many seconds it was ready."""

    ready_s: Positive
    reading: Reading
