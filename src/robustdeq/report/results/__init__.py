"""The results a report is made from: where they lie, what they are, how complete they are, how they relate."""

from robustdeq.report.results.describe import Result
from robustdeq.report.results.find import Sources, find_sources
from robustdeq.report.results.trainings import Run

__all__ = ["Result", "Run", "Sources", "find_sources"]
