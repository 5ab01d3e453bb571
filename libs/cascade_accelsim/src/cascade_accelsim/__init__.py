"""Readers of Accel-Sim's text: logs, kernel lists, tracer statistics, GPU configs and kernel names.

Everything here is pure and has no dependency, so that the parser, worker, ingest, API, estimate and bench
read one text in one way. The only modules that touch files are `configs_io` and `log.bench`. No reader raises
on bad text: logs come from killed processes, forks and wrappers, and a reader that stops would lose the rest.
"""
