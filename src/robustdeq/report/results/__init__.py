"""The results a report is made from: where they lie, what they are, how complete they are, how they relate."""

from robustdeq.report.results.describe import Result, Run
from robustdeq.report.results.find import Sources, find_sources

__all__ = ["Result", "Run", "Sources", "find_sources"]
