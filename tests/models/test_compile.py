"""`model.compile()` changes the speed and nothing else."""

import os
import subprocess
import sys

import pytest
import torch

# A process of its own: the shape checks that the tests switch on are not what users compile.
SCRIPT = """
import copy, pickle, sys, warnings
import torch
import robustdeq as rd

warnings.filterwarnings("ignore", module=r"torch\\.")  # third-party; anything else is an error
folder, backend = sys.argv[1:]
x = torch.load(folder + "/x.pt")

def outcome(model):
    pixels = x.clone().requires_grad_()
    logits = model(pixels)
    (grad,) = torch.autograd.grad(logits.square().sum(), pixels)
    with torch.no_grad():
        plain = model(x)
    return logits.detach(), grad, plain

model = rd.load(folder)
keys = list(model.state_dict())
results = {"eager": outcome(model)}
model.compile(backend=backend)
results["compiled"] = outcome(model)
results["copy"] = outcome(copy.deepcopy(model))
results["pickle"] = outcome(pickle.loads(pickle.dumps(model)))
results["original after copying"] = outcome(model)
assert list(model.state_dict()) == keys
model.save_pretrained(folder + "/compiled")
results["checkpoint"] = outcome(rd.load(folder + "/compiled"))
counters = torch._dynamo.utils.counters
results["frames"] = counters["stats"]["unique_graphs"], dict(counters["graph_break"])
torch.save(results, folder + "/results.pt")
"""


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_a_compiled_model_and_its_copies_give_the_eager_logits_and_gradients(model, x, tmp_path, backend):
    model.save_pretrained(tmp_path)
    torch.save(x, tmp_path / "x.pt")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path), backend],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert done.returncode == 0, done.stderr
    results = torch.load(tmp_path / "results.pt")
    graphs, breaks = results.pop("frames")
    assert graphs >= 4  # the encoder, the head and the two halves of f, at least
    assert not breaks
    logits, grad, _ = expected = results.pop("eager")
    assert logits.abs().max() > 1e-3
    assert grad.abs().max() > 1e-3
    assert len(results) == 5
    for name, result in results.items():
        for actual, eager in zip(result, expected, strict=True):
            torch.testing.assert_close(actual, eager, rtol=0, atol=1e-9, msg=lambda text, name=name: f"{name}: {text}")
