"""Tables, figures and pages from stores of results and folders of training runs; never from tensors."""

from robustdeq.report.results import Result, Run, Sources, find_sources
from robustdeq.report.tables import make_tables
from robustdeq.report.write import Report, make_report, write_report

__all__ = ["Report", "Result", "Run", "Sources", "find_sources", "make_report", "make_tables", "write_report"]
