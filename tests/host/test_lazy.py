"""Packages whose imports wait until a name is used."""

import subprocess
import sys

import pytest

import robustdeq as rd
import robustdeq.threat
import robustdeq.training


@pytest.mark.parametrize("package", [rd, robustdeq.training, robustdeq.threat], ids=lambda p: p.__name__)
def test_every_exported_name_resolves_and_is_listed(package):
    for name in package.__all__:
        assert getattr(package, name) is getattr(package, name)
    assert set(package.__all__) <= set(dir(package))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'robustdeq' has no attribute 'Brodyen'"):
        _ = rd.Brodyen
    assert not hasattr(rd, "__wrapped__")


def test_rooms_are_attributes_and_importing_the_package_imports_no_torch():
    program = "import sys, robustdeq as rd; print(rd.threat.number('1/4'), 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "0.25 False\n"
