"""What execute writes: results.jsonl and raw/, so that nothing finished is ever lost and nothing half is ever read.

Raw output is on the disk before the result that names its hash, and a result is on the disk before the run goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

from validation.base import bounded
from validation.base.counting import number_of
from validation.base.errors import DiskError, RunError
from validation.base.files import flush_folder
from validation.model import REPORT, RawLog, Result
from validation.model.load import is_json

RESULTS = "results.jsonl"
FLUSHING = 8  # files of a measurement that are flushed at the same time


class Store:
    """Appends results to a run directory; opening it cuts off a torn last line, and `torn` says so."""

    def __init__(self, run_dir: Path) -> None:
        """Open or create results.jsonl; RunError when that fails."""
        self._dir = run_dir
        self._path = run_dir / RESULTS
        self.torn: str | None = None
        self._flushing = ThreadPoolExecutor(FLUSHING, "flush")  # threads start when there is something to flush
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._size = self._cut()
            self._lines = self._count()
            flush_folder(run_dir)
        except OSError as fault:
            raise self._fault(fault, self._path) from fault

    def _cut(self) -> int:
        """Drop an incomplete last line, so that the next one starts on its own; the size that remains."""
        try:
            content = bounded.read_file(self._path)
        except bounded.TooMuch as fault:
            raise RunError(str(fault)) from None
        whole = content.rfind(b"\n") + 1
        last = content[content.rfind(b"\n", 0, whole - 1) + 1 : whole] if whole else b""
        if whole == len(content) and last and not is_json(last):
            whole -= len(last)
        if whole != len(content):
            self.torn = f"{RESULTS}: torn last line ({number_of(len(content) - whole, 'byte')}) was dropped"
            os.ftruncate(self._fd, whole)
            os.fsync(self._fd)
        return whole

    def _count(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for line in os.pread(self._fd, self._size, 0).splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                value = json.loads(line)
                if isinstance(value, dict):
                    found[str(value.get("measurement"))] += 1
        return found

    def attempt(self, measurement: str) -> int:
        """The number of the attempt that the next line of this measurement is."""
        return self._lines[measurement] + 1

    def _fault(self, fault: OSError, path: Path) -> DiskError:
        return DiskError(
            f"{path}: cannot be written: {fault.strerror or fault}; what was finished is safe: make room, then "
            f"toolkit validate --resume {self._dir}"
        )

    def raw(
        self,
        measurement: str,
        outputs: Sequence[tuple[str, str, str]],
        report: Mapping[str, Any] | None = None,
    ) -> tuple[RawLog, ...]:
        """Keep tools' outputs, (node, stdout, stderr), flushed to the disk; with the first one the probe's `report`.

        An earlier attempt's files stay: the next gets a number. All files are written first and flushed at the same
        time, which the disk does in little more than what one takes.
        """
        folder = self._dir / "raw" / measurement
        logs: list[RawLog] = []
        path = folder
        with contextlib.ExitStack() as stack:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                written: list[int] = []
                for position, (node, stdout, stderr) in enumerate(outputs):
                    texts = {"out": stdout, "err": stderr}
                    if report is not None and position == 0:
                        rest = {key: value for key, value in report.items() if key not in ("stdout", "stderr")}
                        texts[REPORT] = json.dumps(rest) + "\n"
                    attempt = 1
                    while any((folder / f"{_stem(node, attempt)}.{end}").exists() for end in ("out", "err", REPORT)):
                        attempt += 1
                    for suffix, text in texts.items():
                        path = folder / f"{_stem(node, attempt)}.{suffix}"
                        content = text.encode("utf-8", "replace")
                        file = stack.enter_context(path.open("xb", buffering=0))
                        _write(file.fileno(), content)
                        written.append(file.fileno())
                        sha256 = hashlib.sha256(content).hexdigest()
                        logs.append(RawLog(path=path.relative_to(self._dir).as_posix(), sha256=sha256))
                self._flush([partial(os.fsync, descriptor) for descriptor in written])
                self._flush([partial(flush_folder, one) for one in (folder, folder.parent)])
            except OSError as fault:
                raise self._fault(fault, path) from fault
        return tuple(logs)

    def _flush(self, work: Sequence[Callable[[], object]]) -> None:
        """All at the same time. When one fails the others have ended, too: no descriptor is closed under them."""
        running = [self._flushing.submit(one) for one in work]
        wait(running)
        for one in running:
            one.result()

    def append(self, result: Result) -> None:
        """Write one line and wait until it is on the disk. On failure the file is as it was before."""
        line = result.model_dump_json().encode() + b"\n"
        try:
            os.lseek(self._fd, self._size, os.SEEK_SET)
            _write(self._fd, line)
            os.fsync(self._fd)
        except OSError as fault:
            os.ftruncate(self._fd, self._size)
            raise self._fault(fault, self._path) from fault
        self._size += len(line)
        self._lines[result.measurement] += 1

    def close(self) -> None:
        """Close the file; nothing is pending."""
        self._flushing.shutdown()
        os.close(self._fd)


def _write(descriptor: int, content: bytes) -> None:
    written = 0
    while written < len(content):
        written += os.write(descriptor, content[written:])


def _stem(node: str, attempt: int) -> str:
    return node if attempt == 1 else f"{node}.{attempt}"
