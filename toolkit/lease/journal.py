"""What root's programs on a server say: to its journal, and to whoever runs them by hand."""

from __future__ import annotations

import sys
import syslog


def tell(words: str) -> None:
    """To the journal, and to whoever runs this by hand."""
    syslog.openlog("elastic-ai-lease", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(words)
    print(words, file=sys.stderr)


def tell_all(what: str, words: list[str]) -> None:
    """`tell`, where there is something to tell."""
    if words:
        tell(f"{what}: {'; '.join(words)}")
