"""Reports: what a run measured and how it was judged, for people.

`documents` reads a run directory, the other modules make pure views and figures of it, `render` puts them into the
templates. Further formats take the same views.
"""

from validation.report.formats import FILES, Written, make, write_formats
from validation.report.render import write_html

__all__ = ["FILES", "Written", "make", "write_formats", "write_html"]
