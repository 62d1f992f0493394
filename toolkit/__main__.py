"""`python -m toolkit`."""

import sys

from toolkit.needs import lacking


def run() -> None:
    """Start, or say what this Python lacks for it."""
    if words := lacking():
        print(f"error: {words}", file=sys.stderr)
        sys.exit(2)  # Exit.USAGE
    from toolkit.cli import main

    main()


run()
