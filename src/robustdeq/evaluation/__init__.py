"""Evaluation that can be believed: suites of attacks, a store that survives, metrics from the store alone."""

from robustdeq.evaluation.analysis import metrics, paired
from robustdeq.evaluation.analysis.metrics import IncompleteError
from robustdeq.evaluation.analysis.statistics import Difference, Share
from robustdeq.evaluation.benchmark import Benchmark, benchmark
from robustdeq.evaluation.evaluate import evaluate
from robustdeq.evaluation.run.plan import OtherStoreError
from robustdeq.evaluation.run.progress import Progress
from robustdeq.evaluation.selection import select_state
from robustdeq.evaluation.store.attack_spec import AttackSpec
from robustdeq.evaluation.store.store import Store
from robustdeq.evaluation.suites.read import make_suite
from robustdeq.evaluation.suites.suite import Context, Suite
from robustdeq.evaluation.verdict import Verdict
from robustdeq.host.files import DiskFullError
from robustdeq.host.interrupts import Interrupted

__all__ = [
    "AttackSpec",
    "Benchmark",
    "Context",
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
    "benchmark",
    "evaluate",
    "make_suite",
    "metrics",
    "paired",
    "select_state",
]
