"""The README's Python runs as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_python_of_the_readme_runs(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert blocks
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)], cwd=tmp_path, env=os.environ, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert "4 converged" in run.stdout
    assert "torch.Size([20, 4, 100])" in run.stdout
    assert (tmp_path / "runs" / "my-model" / "model.safetensors").is_file()


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_commands_of_the_readme_exist(target):
    assert re.search(rf"^make {target}\b", README.read_text(), re.M)
    assert re.search(rf"^{target}:", (README.parent / "Makefile").read_text(), re.M)
