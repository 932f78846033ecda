"""Predictors of a user whose metadata name neither data set nor budget."""

from tests.evaluation.predictors import linear_function, small_deq


def bare():
    """A plain function."""
    logits = linear_function()
    del logits.metadata
    return logits


def bare_deq():
    """A DEQ without metadata."""
    model = small_deq()
    model.metadata = {}
    return model
