"""Evaluation that can be believed: suites of attacks, a store that survives, metrics from the store alone."""

from robustdeq.evaluation import metrics, pairing
from robustdeq.evaluation.evaluate import evaluate
from robustdeq.evaluation.interrupt import Interrupted
from robustdeq.evaluation.manifest import OtherStoreError
from robustdeq.evaluation.metrics import IncompleteError
from robustdeq.evaluation.named import Suite
from robustdeq.evaluation.runner import Progress
from robustdeq.evaluation.selection import select_state
from robustdeq.evaluation.specs import AttackSpec
from robustdeq.evaluation.statistics import Difference, Share
from robustdeq.evaluation.store import Store
from robustdeq.evaluation.suites import make_suite
from robustdeq.evaluation.verdict import Verdict
from robustdeq.files import DiskFullError

__all__ = [
    "AttackSpec",
    "Difference",
    "DiskFullError",
    "IncompleteError",
    "Interrupted",
    "OtherStoreError",
    "Progress",
    "Share",
    "Store",
    "Suite",
    "Verdict",
    "evaluate",
    "make_suite",
    "metrics",
    "pairing",
    "select_state",
]
