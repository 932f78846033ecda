"""Tables, figures and pages from stores of results and folders of training runs; never from tensors."""

from robustdeq.report.sources import Result, Run, Sources, find_sources
from robustdeq.report.tables import make_tables
from robustdeq.report.write import write_report

__all__ = ["Result", "Run", "Sources", "find_sources", "make_tables", "write_report"]
