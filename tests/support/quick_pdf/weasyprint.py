"""Stands in for WeasyPrint where a test is about something else than the PDF: laying one out takes ten seconds.

For commands that are started with this folder on PYTHONPATH. The real one is what test_report_formats looks at.
"""

from __future__ import annotations

import hashlib


class urls:
    class URLFetcher:
        def __init__(self, allowed_protocols: tuple[str, ...]) -> None:
            assert allowed_protocols == ("data",)


class HTML:
    def __init__(self, string: str, base_url: str | None, url_fetcher: urls.URLFetcher) -> None:
        self.digest = hashlib.sha256(string.encode()).hexdigest()
        self.certificate = 'id="criteria"' not in string

    def write_pdf(self, pdf_tags: bool) -> bytes:
        return f"%PDF-1.7\n% stand-in of {self.digest}\n%%EOF\n".encode()
