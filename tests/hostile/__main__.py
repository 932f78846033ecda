"""The campaign: `python -m tests.hostile --cases 50000 --seed 0` (or `make hostile`)."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path

from tests.hostile.campaign import run, table
from tests.hostile.generators import KINDS, SHARES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--cases", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    tallies = []
    whole = sum(SHARES[kind] for kind in given.kinds)
    with tempfile.TemporaryDirectory() as folder:
        for kind in given.kinds:
            began, cases = time.monotonic(), round(given.cases * SHARES[kind] / whole)
            print(f"{kind}: {cases:,} cases", file=sys.stderr, flush=True)
            done, parts = 0, []
            while done < cases:
                size = min(1000, cases - done)
                seed = given.seed * 1_000_003 + done
                parts.append(run(kind, KINDS[kind], Path(folder) / kind, cases=size, seed=seed))
                done += size
                spent = time.monotonic() - began
                left = spent / done * (cases - done)
                print(f"  {done:,} of {cases:,}, {spent:.0f} s, {left:.0f} s left", file=sys.stderr, flush=True)
            for part in parts[1:]:
                parts[0].counts += part.counts
                parts[0].examples += part.examples
            tallies += parts[:1]
    for tally in tallies:
        print(*tally.examples, sep="\n", end="\n" * bool(tally.examples))
    print(f"seed {given.seed}", table(tallies), sep="\n")
    return 1 if any(tally.wrong for tally in tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
