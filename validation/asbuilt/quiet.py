"""What a command of a check prints on its node, without what login files print around it."""

from __future__ import annotations

import functools
from typing import Any

from validation.base.noise import Marked

_DONE = "_elastic_ai_between_marks"


def between_marks(backend: Any) -> None:
    """Have a backend of testinfra run each command between two marks, and give what stands between them."""
    if getattr(backend, _DONE, False):
        return
    plain = backend.run

    @functools.wraps(plain)
    def run(command: str, *args: str, **more: Any) -> Any:
        words = backend.quote(command, *args)
        marked = Marked(["sh", "-c", words])
        result = plain(marked.line, **more)
        result.command = backend.encode(words)  # as the check has it, for its message
        result._stdout = marked.answer(result.stdout_bytes)
        return result

    backend.run = run
    setattr(backend, _DONE, True)
