"""The released weights in our model."""

from robustdeq.models.compat import rename

from .comparison import compares


@compares("weights", "*", round_trip=True)
def test_every_released_weight_is_in_the_model(case):
    state = case.model().state_dict()
    weights = {name: state.pop(rename(name)) for name in case.weights()}
    assert not state
    return weights
