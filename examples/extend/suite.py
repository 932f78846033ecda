"""A suite of your own: a YAML file that names attacks, run into a store."""

import sys
import tempfile
from pathlib import Path

from my_model import digits, trained

import robustdeq as rd
from robustdeq.evaluation import Store, metrics

SUITE = Path(__file__).with_name("suite.yaml")


def main(out: str | None = None) -> None:
    """Run suite.yaml on a small DEQ and show the accuracy under each attack."""
    model, (x, y) = rd.EarlyState(trained(), state=8), digits(20)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(out or temporary) / "results"
        verdict = rd.evaluate(model, (x, y), suite=SUITE, out=folder, threat=rd.Linf(0.15))
        print(verdict)
        for row in metrics.accuracy(Store(folder)).iter_rows(named=True):
            print(f"{row['attack']:16} {row['predictor']:9} state {row['state']:5} {row['accuracy']:.0%}")


if __name__ == "__main__":
    main(*sys.argv[1:])
