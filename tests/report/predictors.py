"""Predictors that a user might bring, which say nothing of their images and their budget."""

from tests.evaluation.predictors import linear_function, small_deq


def bare():
    """A function."""
    logits = linear_function()
    del logits.metadata
    return logits


def bare_deq():
    """A DEQ."""
    model = small_deq()
    model.metadata = {}
    return model
