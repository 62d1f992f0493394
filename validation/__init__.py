"""The acceptance engine: plan, execute, judge, report. Imports nothing of `toolkit`.

Nothing is imported here on purpose: `validation.probes` runs on nodes that have the standard library only.
"""
