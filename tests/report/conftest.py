"""What the tests of the report share."""

import pytest

from robustdeq.evaluation.store.store import Store
from robustdeq.report import images
from robustdeq.report.figures import accuracies, along_states
from robustdeq.report.figures.drawing import Figure


@pytest.fixture
def small_files(monkeypatch):
    """Let files hold fewer images than their manifest says, so that a large store is small."""
    monkeypatch.setattr(Store, "_examine", lambda *args: None)


@pytest.fixture
def undrawn(monkeypatch):
    """Leave figures without a drawing, which takes most of a small report's time; their words are as ever."""

    def described(name, title, alt, paint, *, panels=1, width=0.0, height=0.0, margin=0.0, where=""):
        return Figure(name, title, alt, "<svg></svg>\n", where, panels > 1)

    for module in (accuracies, along_states, images):
        monkeypatch.setattr(module, "draw", described)
