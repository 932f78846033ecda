"""What every defence asks of the predictor it wraps."""

from __future__ import annotations

from robustdeq.models.predictor import DynamicPredictor


def check_dynamic(defence: object, predictor: object) -> None:
    """Refuse a predictor without dynamics."""
    if not isinstance(predictor, DynamicPredictor):
        raise TypeError(
            f"{type(defence).__name__} works along the dynamics of a DEQ, or of a defence around one; "
            f"{type(predictor).__name__} has none"
        )
