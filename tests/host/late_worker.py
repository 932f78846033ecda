"""A worker that dies in its first attempt, and in the second one lets the other wait (see test_processes.py)."""

import os
import sys
import time

from robustdeq.host.processes import launch

attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
if attempt == 1 and rank == 0:
    time.sleep(8)
fabric = launch("cpu")
fabric.barrier()
if attempt == 0:
    sys.exit(1)
print(f"rank {fabric.global_rank} of {fabric.world_size} met in attempt {attempt}")  # noqa: T201
