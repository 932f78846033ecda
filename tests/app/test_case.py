"""A case is the same in a link, on the command line and in Python."""

import shlex

import pytest

from robustdeq.app.case import Case, flag
from robustdeq.cli.arguments.defence_flags import DefenceFlags
from robustdeq.cli.arguments.parser import verb_parser
from robustdeq.cli.explore import run

CASES = [
    Case(model="m"),
    Case(model="a/b c", image="data:image/png;base64,AB+/=", label=0, attack="apgd", eps="8/255", steps=3, seed=7),
    Case(model="m", oracle="unrolled", oracle_state=2, oracle_steps=4, oracle_damping=1.0, oracle_view="aware"),
    Case(model="m:f", defence="none", state="final"),
    Case(model="m", oracle="carried", defence_resolve=False, defence_history="kept", defence_final_input="received"),
    Case(model="m", defence_variant="released", defence_direction="gradient", defence_every=4, defence_steps=0),
    Case(model="m", attack="my:Climb", attack_own={"decay": "3/4"}, defence="my:Blur", defence_own={"at_most": "1 2"}),
]


@pytest.mark.parametrize("case", CASES)
def test_a_link_names_the_same_case(case):
    assert Case.of_query(case.query) == case


@pytest.mark.parametrize("case", CASES)
def test_a_command_line_names_the_same_case(case):
    words = shlex.split(case.command("--export", "out"))
    assert words[:2] == ["robustdeq", "explore"]
    given = verb_parser("explore").parse_words(words[2:])
    assert str(given.pop("export")) == "out"
    assert Case.of({"model": given.pop("ckpt"), **given}) == case


def test_every_field_has_a_flag():
    fields = {name for name in Case.__dataclass_fields__ if name != "model"}
    assert fields <= set(run.__annotations__) | set(DefenceFlags.__annotations__)
    assert flag("defence_every") == "--defence.every"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"atack": "pgd"}, "a case has no 'atack'; did you mean attack?"),
        ({"attack": "fgsm"}, "attack must be one of none, pgd, apgd or package.module:Class, got 'fgsm'"),
        ({"attack": "pgd", "attack.decay": "1"}, "attack pgd has no option 'decay' of one's own"),
        ({"attack": None}, "attack must be one of none, pgd, apgd or package.module:Class, got None"),
        ({"steps": "many"}, "steps must be a whole number, got 'many'"),
        ({"defence_resolve": "perhaps"}, "defence_resolve must be true or false, got 'perhaps'"),
        ({"defence_history": "lost"}, "defence_history must be one of kept, restarted, got 'lost'"),
        ({"steps": "0"}, "steps must be 1 to 1000, got 0"),
        ({"oracle_damping": "x"}, "oracle_damping must be a number, got 'x'"),
    ],
)
def test_a_wrong_case_gets_a_sentence(values, message):
    with pytest.raises(ValueError, match="^" + message.replace("?", r"\?")):
        Case.of({"model": "m", **values})
