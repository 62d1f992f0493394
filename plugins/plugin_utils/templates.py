"""Templates that one process of a run compiled are there for all others, and for all hosts.

Ansible forks a process for each task on each host, and each compiles what its task needs: the same conditions and
variables of roles for each host, a third of what the controller computes (benchmarks/README.md). What Jinja made of a
template is kept in the folder that Ansible makes for one run, for its user alone, and removes at its end.
"""

from __future__ import annotations

import hashlib
import marshal
import os
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any

FOLDER = "elastic-ai-templates"


class Kept:
    """Compiled templates in a folder, by everything that they are compiled from."""

    def __init__(self, folder: Path) -> None:
        """Make the folder, which its user alone can read and write."""
        folder.mkdir(mode=0o700, exist_ok=True)
        self.folder = folder

    def read(self, key: str) -> CodeType | None:
        """What was made of it; None where nobody in this run has compiled it."""
        try:
            return marshal.loads((self.folder / key).read_bytes())  # type: ignore[no-any-return]  # noqa: S302 - our own
        except (OSError, ValueError, EOFError, TypeError):
            return None

    def write(self, key: str, code: CodeType) -> None:
        """Whole, or not at all: other processes read it meanwhile. A full disk costs time and nothing else."""
        own = self.folder / f"{key}.{os.getpid()}"
        with suppress(OSError):
            own.write_bytes(marshal.dumps(code))
            own.replace(self.folder / key)


def key_of(*what: object) -> str:
    """A name for what a template is compiled from."""
    return hashlib.sha256(repr(what).encode("utf-8", "surrogatepass")).hexdigest()


def keep(temporary: str) -> bool:
    """Let Ansible's templates be compiled once; whether this release of Ansible is one that it is known of."""
    try:
        from ansible._internal._templating import _jinja_bits as bits
        from ansible._internal._templating._jinja_bits import AnsibleEnvironment, _TemplateCompileContext
        from jinja2.environment import TemplateExpression

        fields = tuple(bits._TEMPLATE_OVERRIDE_FIELD_NAMES)
        compiled, expressed = AnsibleEnvironment.compile, AnsibleEnvironment.compile_expression
    except (ImportError, AttributeError):
        return False
    if hasattr(AnsibleEnvironment, "elastic_ai_kept"):
        return True
    kept = Kept(Path(temporary) / FOLDER)

    def settings(environment: Any) -> tuple[object, ...]:
        context = _TemplateCompileContext.current(optional=True)
        return (*(getattr(environment, name) for name in fields), bool(context and context.escape_backslashes))

    def compile_once(self: Any, source: Any, *rest: Any, **more: Any) -> Any:
        if rest or more or not isinstance(source, str) or self._debuggable_template_source:
            code = compiled(self, source, *rest, **more)
            if not rest and not more and isinstance(code, CodeType):
                self.elastic_ai_code = code
            return code
        key = key_of("template", str(source), settings(self))
        code = kept.read(key)
        if code is None:
            code = compiled(self, source)
            kept.write(key, code)
        return code

    def express_once(self: Any, source: str, undefined_to_none: bool = True) -> Any:
        if self._debuggable_template_source:
            return expressed(self, source, undefined_to_none)
        key = key_of("expression", str(source), settings(self))
        code = kept.read(key)
        if code is not None:
            template = self.template_class.from_code(self, code, self.make_globals(None), None)
            return TemplateExpression(template, undefined_to_none)
        self.elastic_ai_code = None
        expression = expressed(self, source, undefined_to_none)
        if self.elastic_ai_code is not None:
            kept.write(key, self.elastic_ai_code)
        return expression

    AnsibleEnvironment.compile, AnsibleEnvironment.compile_expression = compile_once, express_once
    AnsibleEnvironment.elastic_ai_kept = kept
    return True
