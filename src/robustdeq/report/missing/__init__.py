"""The experiments of the paper that the results do not hold, with the commands that would add them."""

from robustdeq.report.missing.commands import ROOT, ROOT_NOTE
from robustdeq.report.missing.experiments import Missing, missing_experiments
from robustdeq.report.missing.items import rest

__all__ = ["ROOT", "ROOT_NOTE", "Missing", "missing_experiments", "rest"]
