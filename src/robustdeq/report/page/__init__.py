"""The HTML pages of a report: an index that opens with its answer, a page per model, pages of images."""

from robustdeq.report.page.render import pages

__all__ = ["pages"]
