"""Writing a file of the report: whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from validation.load import ConfigError


def replace(target: Path, content: bytes) -> Path:
    """Write a whole file or nothing, so that no reader sees half of it. ConfigError when the disk refuses."""
    part = target.with_name(f".{target.name}.part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except OSError as e:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise ConfigError(f"{target}: cannot write the report: {e.strerror or e}; give another place") from None
    return target
