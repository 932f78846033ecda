"""An attack of your own: you write the search, the base class guarantees the rest."""

from my_attacks import MIFGSM
from my_model import digits, trained

import robustdeq as rd


def main() -> None:
    """Attack a small DEQ on digits through its third state, beside PGD."""
    model, (x, y) = trained(), digits(50)
    threat = rd.Linf(0.15)
    oracle = rd.UnrolledState(model, state=3, steps=2, damping=0.5)
    for attack in (MIFGSM(threat), rd.PGD(threat, steps=10, step_size=threat.eps / 4)):
        result = attack(oracle, x, y)
        print(f"{attack.name:12} fools {int(result.success.sum())} of {len(x)} images, queries {result.queries[0]}")
        assert threat.contains(result.images, x).all()


if __name__ == "__main__":
    main()
