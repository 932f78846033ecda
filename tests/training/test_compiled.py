"""`--compile true` changes the speed of a run and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

# A process of its own, as in tests/models/test_compile.py; dynamo's tracing with an eager backend, which takes seconds.
SCRIPT = """
import functools, sys, warnings
from pathlib import Path
import torch
from tests.training.runs import config
from robustdeq.training.logs import read_log
from robustdeq.training.trainer import Trainer

warnings.filterwarnings("ignore", module=r"torch\\.")
torch.compile = functools.partial(torch.compile, backend="eager")
losses = {}
for compiled in (False, True):
    changes = {"compile": compiled, "precision": "64-true", "schedule": {"ema": 0.5}, "validation": {"every": 100}}
    changes["objective"] = {"inner": "carried"}
    trainer = Trainer(config(changes), Path(sys.argv[1]) / str(compiled), device="cpu")
    trainer.fit()
    losses[compiled] = torch.tensor([float(row["loss"]) for row in read_log(trainer.out)], dtype=torch.float64)
# not the weights: Adam divides by the gradient's size, so where that is nearly 0 an update is rounding and nothing else
torch.testing.assert_close(*losses.values(), rtol=1e-9, atol=0)
assert len(losses[True]) == 4
print("graphs", torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""


@pytest.mark.long
def test_a_compiled_run_takes_the_same_steps(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split("graphs")[1]) >= 4  # the encoder, the head and the two halves of f, at least
