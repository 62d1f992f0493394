"""Reading the engine's documents: YAML, JSON and results.jsonl, each refused with one clear line.

Errors name the file and the line of the offending key, because a person has to find it in an editor.
"""

from __future__ import annotations

import hashlib
import json
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from validation.base import bounded
from validation.base.counting import number_of
from validation.base.errors import ConfigError as ConfigError
from validation.base.errors import FormError
from validation.base.yaml_text import child, fault_of, parse_yaml, yaml_tree
from validation.model import Result
from validation.model.base import Model, explain, lighten

T = TypeVar("T", bound=BaseModel)
_NAME = 80  # characters of a key in an error
MAX_BYTES, MAX_YAML_BYTES = bounded.FILE_BYTES, bounded.YAML_BYTES
_BLOCK_BYTES = 1 << 24
_OF_SHELLS = ("/dev/fd/", "/dev/stdin", "/proc/")  # pipes that a shell makes for a command


@dataclass(frozen=True)
class Source:
    """A file's text as it was read, once: what it decides and what is copied of it are the same text."""

    path: Path
    text: str

    @property
    def sha256(self) -> str:
        """Hash of the file's bytes."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def read_source(path: Path) -> Source:
    """A text file, byte for byte; ConfigError where it cannot be read or is not UTF-8."""
    return Source(path, _read(path))


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """A file as it stands; ConfigError where it cannot be read or has more than `most` bytes."""
    try:
        return _whole(path, most)
    except OSError as e:
        raise ConfigError(f"{path}: cannot be read: {e.strerror or e}") from None


def _whole(path: Path, most: int) -> bytes:
    if stat.S_ISFIFO(path.stat().st_mode) and not str(path).startswith(_OF_SHELLS):
        raise ConfigError(f"{path}: is a named pipe, of which nobody knows when it is read; name a file")
    parts, size = [], 0
    with path.open("rb") as file:
        while block := file.read(min(_BLOCK_BYTES, most + 1 - size)):
            parts.append(block)
            size += len(block)
            if size > most:
                raise ConfigError(f"{path}: has more than {most >> 20} MiB, which no such file has; look at it")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _source(source: Path | Source) -> Source:
    return source if isinstance(source, Source) else read_source(source)


def _read(path: Path) -> str:
    try:
        return _whole(path, MAX_BYTES).decode()
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; check the path") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: is a directory; name a file") from None
    except UnicodeDecodeError as e:
        raise ConfigError(f"{path}: not UTF-8 text at byte {e.start}; save it as UTF-8") from None
    except OSError as e:
        raise ConfigError(f"{path}: {e.strerror or e}") from None
    except ValueError as e:  # a NUL in the name
        raise ConfigError(f"{str(path)!r}: {e}; check the path") from None


def _line_of(node: yaml.Node | None, location: tuple[int | str, ...]) -> int:
    """Line (from 1) of the deepest part of `location` that exists in a YAML tree."""
    line = node.start_mark.line + 1 if node is not None else 1
    for part in location:
        # pydantic puts the names of union members into the location; skip what the file does not have
        if found := child(node, part):
            node, line = found
    return line


def line_of(source: Path | Source, *location: int | str) -> int:
    """Line (from 1) of a key in a YAML file that `load_yaml` has read: for faults that only its user can see."""
    return _line_of(yaml_tree(_source(source).text), location)


def load_yaml(source: Path | Source, model: type[T], context: object = None) -> T:
    """Read a YAML file into `model`; FormError with file and line where it does not fit. `context`: what the model's
    validators look things up in."""
    source = _source(source)
    path, text = source.path, source.text
    if len(text) > MAX_YAML_BYTES:
        raise ConfigError(f"{path}: has more than {MAX_YAML_BYTES >> 20} MiB, which no such file has; look at it")
    try:
        data = parse_yaml(text)
    except yaml.YAMLError as e:
        line, words = fault_of(e, text)
        raise ConfigError(f"{path}:{line}: not valid YAML: {words}; correct this line") from None
    if data is None:
        raise ConfigError(f"{path}:1: nothing is in this file; write its keys, or remove it")
    if not isinstance(data, dict):
        raise ConfigError(f"{path}:1: a mapping of keys is expected, found {type(data).__name__}; see a packaged file")
    try:
        return model.model_validate(data, context=context)
    except ValidationError as e:
        location, words = explain(e)
        raise FormError(f"{path}:{_line_of(yaml_tree(text), location)}: {_field(location)}{words}") from None


def _field(location: tuple[int | str, ...]) -> str:
    """`name.of.a.field: `, on one line whatever the names are; nothing for the document itself."""
    parts = (str(p) if str(p).isprintable() and len(str(p)) <= _NAME else f"{str(p)[:_NAME]!r}" for p in location)
    return ".".join(parts) + ": " if location else ""


def _as_written(text: str, document: BaseModel) -> bool:
    """Whether a text is what the model itself would write."""
    at = 0
    for part in document.written() if isinstance(document, Model) else (document.model_dump_json(indent=2), "\n"):
        if not text.startswith(part, at):
            return False
        at += len(part)
    return at == len(text)


def _last_line_with(text: str, key: str) -> int:
    """Line (from 1) of the last place where a JSON text has `key` as a key."""
    return text.count("\n", 0, text.rfind(json.dumps(key))) + 1


def load_json(source: Path | Source, model: type[T], known: bool = False) -> T:
    """Read a JSON file into `model`; FormError with file and line where it does not fit. `known`: these very bytes
    were read before, and repeat no key.
    """
    source = _source(source)
    path, text = source.path, source.text
    try:
        document = model.model_validate_json(text, strict=True)
    except ValidationError as e:
        location, words = explain(e)
    else:
        # what the model itself would write repeats no key; any other text is looked through, which takes longer
        repeated = None if known or _as_written(text, document) else _repeated_key(text)
        if repeated is None:
            return document
        raise ConfigError(f"{path}:{_last_line_with(text, repeated)}: duplicate key: {repeated}; keep one")
    broken = _broken(text)
    if broken is not None:
        raise ConfigError(f"{path}:{broken[0]}: not valid JSON: {broken[1]}; the file is damaged or cut")
    # JSON is YAML for the purpose of finding a key's line; where the parser disagrees the first line has to do
    try:
        tree = yaml_tree(text)
    except yaml.YAMLError:
        tree = None
    raise FormError(f"{path}:{_line_of(tree, location)}: {_field(location)}{words}")


def read_results(path: Path, run: str) -> tuple[list[Result], str | None]:
    """All results of the run called `run`, and words about a torn last line that was dropped (None where there was
    none).

    A writer that is killed leaves at most its last line incomplete: that one is dropped and told. A bad line
    elsewhere means that the file was edited or damaged, a line of another run that files were mixed up: ConfigError
    with its line.
    """
    return parse_results(path, results_text(path), run)


def results_text(path: Path) -> bytes:
    """results.jsonl as it stands; nothing where it is not there."""
    try:
        return _whole(path, MAX_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as e:
        raise ConfigError(f"{path}: {e.strerror or e}") from None


def parse_results(path: Path, raw: bytes, run: str) -> tuple[list[Result], str | None]:
    """As `read_results`, of the text `raw` of the file `path`."""
    lines = raw.split(b"\n")
    unfinished = lines.pop()  # b"" where the file ends with a newline
    results: list[Result] = []
    torn = None
    for number, line in enumerate(lines, start=1):
        if number == len(lines) and not unfinished and not is_json(line):
            torn = (
                f"{path.name}:{number}: torn last line ({number_of(len(line), 'byte')}, cut in the middle) was dropped"
            )
            break
        try:
            result = Result.model_validate_json(line, strict=True)
            repeated = None if result.model_dump_json().encode() == line else _repeated_key(line)
        except ValidationError as e:
            location, words = explain(e)
            raise FormError(f"{path}:{number}: {_field(location)}{words}; {_RESTORE}") from None
        if repeated is not None:
            raise ConfigError(f"{path}:{number}: duplicate key: {repeated}; {_RESTORE}")
        if result.run != run:
            raise ConfigError(f"{path}:{number}: run: is {result.run!r}, but this run is {run!r}; {_RESTORE}")
        _lighten(result)
        results.append(result)
    if unfinished:
        # without its newline the line was never acknowledged, even where it happens to parse
        torn = (
            f"{path.name}:{len(lines) + 1}: torn last line ({number_of(len(unfinished), 'byte')} without "
            "a newline) was dropped"
        )
    return results, torn


def known_results(raw: bytes) -> list[Result]:
    """The results of whole lines which were read before: they are of the run, and repeat no key."""
    results = [Result.model_validate_json(line, strict=True) for line in raw.split(b"\n")[:-1]]
    for result in results:
        _lighten(result)
    return results


def _lighten(result: Result) -> None:
    lighten((result, result.provenance, *result.samples, *result.provenance.raw))


_RESTORE = "restore the file from a copy or delete this line to measure it again with --resume"


class _RepeatedKey(ValueError):
    pass


def _unique(pairs: list[tuple[str, object]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        names = [key for key, _ in pairs]
        raise _RepeatedKey(next(key for key in names if names.count(key) > 1))


def _repeated_key(text: str | bytes) -> str | None:
    """The duplicate key in one object of a JSON text, None where there is none: a mistake, not a choice."""
    try:
        json.loads(text, object_pairs_hook=_unique, parse_int=float)
    except _RepeatedKey as fault:
        return str(fault)
    return None


def _broken(text: str) -> tuple[int, str] | None:
    """Line (from 1) and words of why a text is not JSON; None where it is."""
    try:
        json.loads(text, parse_int=float)  # Python's own int refuses a number of thousands of digits
    except json.JSONDecodeError as fault:
        return fault.lineno, fault.msg
    except RecursionError:
        return 1, "nested too deeply"
    return None


def is_json(line: bytes) -> bool:
    """True when `line` is one whole JSON value, or nested so deeply that no writer was cut in it."""
    try:
        json.loads(line, parse_int=float)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True
