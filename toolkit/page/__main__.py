"""`python -m toolkit.page FILE`: serve the page as the file says, until SIGTERM."""

from __future__ import annotations

import sys
from pathlib import Path

from toolkit.page.app import Page
from toolkit.page.collector import RealSlurm
from toolkit.page.server import Certificate, PageServer, configured
from toolkit.page.settings import CONF, read_settings
from validation.base.errors import ToolkitError


def main() -> None:
    """Entry point."""
    try:
        settings = read_settings(Path(sys.argv[1]) if len(sys.argv) > 1 else CONF)
    except ToolkitError as fault:
        sys.exit(str(fault))
    certificate: Certificate | None = None

    def look() -> str:
        if certificate is None:
            return ""
        certificate.renew()
        return certificate.trouble()

    page = Page(settings, RealSlurm(), look)
    try:
        config = configured(page.app, settings)
    except OSError as fault:
        sys.exit(f"{settings.certificate}, {settings.key}: {fault}")
    certificate = Certificate(settings, config.ssl)
    PageServer(config, page.live.close).run()


if __name__ == "__main__":
    main()
