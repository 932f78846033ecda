"""A pickle is data or an error, never a program."""

import os
import pickle

import numpy as np
import pytest

from robustdeq.data.pickles import read_pickle as read
from tests.data.official import fake_batches, pickled, pickled_by_python2, short

DATA, LABELS = fake_batches()["data_batch_1"]


@pytest.mark.parametrize("write", [pickled, pickled_by_python2])
def test_official_files_are_read_whichever_python_wrote_them(write):
    content = read(write(DATA, LABELS))
    assert content["labels"] == LABELS
    assert content["data"].dtype == np.uint8
    assert np.array_equal(content["data"], DATA)


@pytest.mark.filterwarnings("ignore:numpy.core is deprecated:DeprecationWarning")
def test_the_python2_sample_is_what_numpy_reads_too():
    content = pickle.loads(pickled_by_python2(DATA, LABELS), encoding="bytes")
    assert np.array_equal(content[b"data"], DATA)


def test_an_array_in_fortran_order_keeps_its_rows():
    assert np.array_equal(read(pickled(np.asfortranarray(DATA), LABELS))["data"], DATA)


class Runs:
    """What a malicious file contains: a call."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("function", [os.mkdir, eval, getattr, np.load, np.save])
def test_a_malicious_file_does_not_run(tmp_path, protocol, function):
    target = tmp_path / "executed"
    arguments = (f"__import__('os').mkdir({str(target)!r})",) if function is eval else (str(target), "x")
    arguments = (str(target),) if function is os.mkdir else arguments
    content = pickle.dumps({"data": Runs(function, *arguments), "labels": []}, protocol=protocol)
    with pytest.raises(pickle.UnpicklingError, match=r"it asks for .*, which no CIFAR-10 file needs and which was not"):
        read(content)
    assert list(tmp_path.iterdir()) == []


def test_the_malicious_sample_would_have_run(tmp_path):
    target = tmp_path / "executed"
    pickle.loads(pickle.dumps(Runs(os.mkdir, str(target))))
    assert target.is_dir()


def test_dotted_names_do_not_reach_through_an_allowed_one(tmp_path):
    content = b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93."
    with pytest.raises(pickle.UnpicklingError, match=r"numpy\.ndarray\.tofile"):
        read(content)


@pytest.mark.parametrize("code", ["O8", "V8", "f8", "i8", "u1,O"])
def test_only_uint8_arrays_are_built(code):
    content = b"\x80\x02}" + short("data") + b"cnumpy\ndtype\n(" + short(code) + b"K\x00K\x01tRs."
    with pytest.raises(pickle.UnpicklingError, match="not uint8"):
        read(content)


def test_an_array_of_objects_is_refused():
    with pytest.raises(pickle.UnpicklingError, match="not uint8"):
        read(pickled(np.array([["x", 1]], dtype=object), []))


def test_no_codec_but_latin1_is_looked_up():
    content = b"\x80\x02}" + short("data") + b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13tRs."
    with pytest.raises(pickle.UnpicklingError, match="it asks for the codec 'rot13'"):
        read(content)


@pytest.mark.parametrize("name", [b"numpy\ndtype", b"numpy\nndarray", b"_codecs\nencode"])
def test_a_file_cannot_change_what_reads_the_next_one(name):
    change = b"(N}" + short("__new__") + b"K\x01st"  # (None, {"__new__": 1}): attributes to set
    with pytest.raises(pickle.UnpicklingError):
        read(b"\x80\x02c" + name + b"\n" + change + b"b.")
    assert np.array_equal(read(pickled(DATA, LABELS))["data"], DATA)


@pytest.mark.parametrize("cut", [0, 1, 30, 500, -1])
def test_a_truncated_file_is_an_unpickling_error(cut):
    with pytest.raises(pickle.UnpicklingError):
        read(pickled(DATA, LABELS)[:cut])


def test_random_bytes_are_an_unpickling_error():
    rng = np.random.default_rng(0)
    for _ in range(200):
        with pytest.raises(pickle.UnpicklingError):
            read(rng.bytes(40))


def test_something_else_than_a_dictionary_is_refused():
    with pytest.raises(pickle.UnpicklingError, match="it holds a list, not a dictionary"):
        read(pickle.dumps([1, 2], protocol=2))
