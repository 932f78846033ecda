"""The columns of a store's Parquet files. Every row is one image, predictor and state."""

from __future__ import annotations

from typing import Any

import polars as pl

_COMMON: dict[str, Any] = {
    "image": pl.Int32,  # position in the data
    "label": pl.Int32,
    "predictor": pl.String,  # name in the manifest's `predictors`
    "state": pl.String,  # "1".."N" or "final"
    "deployed": pl.Boolean,  # whether predictions are read from this state
}
_MEASURED: dict[str, Any] = {
    "prediction": pl.Int32,  # -1 if a logit is NaN
    "margin": pl.Float32,  # logit of the label minus the largest other logit
    "entropy": pl.Float32,  # nats
    "loss": pl.Float32,  # cross-entropy
}

CLEAN_SCHEMA: dict[str, Any] = {**_COMMON, **_MEASURED, "correct": pl.Boolean, "residual": pl.Float32}
"""Rows of clean images; the residual is the solver's relative one."""

ATTACK_SCHEMA: dict[str, Any] = {
    **_COMMON,
    "clean_prediction": pl.Int32,
    **_MEASURED,
    "success": pl.Boolean,  # whether the prediction is wrong
    "queries": pl.Int32,  # passes of the oracle
    "deviation": pl.Float32,  # relative change of the state against the clean image's
    "residual": pl.Float32,
}
"""Rows of attacked images; deviation and residual are null unless the attack stores diagnostics."""

PARTIAL_SCHEMA: dict[str, Any] = {
    "number": pl.Int32,  # the attack's number, where several share a batch
    **{name: kind for name, kind in ATTACK_SCHEMA.items() if name not in ("clean_prediction", "success")},
}
"""Rows of a batch, before they are joined with the clean predictions."""
