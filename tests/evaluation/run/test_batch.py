"""What stands in the columns of a store."""

import pytest
import torch

from robustdeq.attacks.task import fooled
from robustdeq.defences import EarlyState, EntropyReduction
from robustdeq.evaluation.run.batch import NO_PREDICTION, measure, score
from robustdeq.evaluation.suites.subject import Subject
from tests.evaluation import predictors


class Sharper(EntropyReduction):
    """With a readout of its own."""

    def read_out(self, walked, *, exact=False):
        return -2 * super().read_out(walked, exact=exact)


@pytest.mark.parametrize("state", [None, 2])
def test_the_deployed_column_is_what_the_predictor_says(model, state):
    x = predictors.images(4)[0]
    inner = model if state is None else EarlyState(model, state=state)
    predictor = Sharper(inner, radius=predictors.EPS)
    subject = Subject(predictor)
    assert subject.deployed_state == ("final" if state is None else "2")
    scores = score(subject, x, all_states=True)
    columns = dict(zip(scores.names, scores.logits, strict=True))
    with torch.no_grad():
        torch.testing.assert_close(columns.pop(subject.deployed_state), predictor(x), rtol=1e-9, atol=1e-9)
        walked = predictor.walk(x)
        others = {str(t): model.head(walked.f.unpack(z)) for t, z in enumerate(walked.solution.trajectory, start=1)}
        others["final"] = model.read_out(walked)
    for name, logits in columns.items():
        torch.testing.assert_close(logits, others[name], rtol=1e-9, atol=1e-9)


def test_scores_call_broken_what_attacks_call_fooled():
    inf, nan = torch.inf, torch.nan
    logits = torch.tensor([[2.0, -inf, 1.0], [inf, 0.0, 1.0], [2.0, nan, 1.0], [1.0, 2.0, -inf]])
    labels = torch.zeros(4, dtype=torch.int64)
    prediction = measure(logits, labels)["prediction"]
    assert prediction.tolist() == [0, 0, NO_PREDICTION, 1]
    assert torch.equal(prediction != labels, fooled(logits, labels))
