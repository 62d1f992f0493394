"""What `bin/test` runs, in which order, and what runs beside what: docs/testing.md.

Standard library alone: `bin/test` asks it which parts are wanted before there is an environment.
"""
