"""The choice of a kernel, and what importing ddh.codes brings along."""

import subprocess
import sys

import native_check
import pytest

from ddh import codes
from ddh._core.errors import InputError
from ddh.codes import kernels


@pytest.fixture
def fresh_choice():
    kernels._choose.cache_clear()
    yield
    kernels._choose.cache_clear()


def hide(monkeypatch, *modules):
    """Make modules look as if they were not installed."""
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, "ddh.codes.kernel_native", raising=False)
    monkeypatch.delattr(codes, "_hamming", raising=False)
    monkeypatch.delenv("DDH_KERNEL", raising=False)


def test_the_native_kernel_is_built():
    """Optional for users, not for us: a broken build must not hide behind the fallback."""
    assert codes.kernel().startswith("native ")


def test_numpy_takes_over(monkeypatch, fresh_choice):
    hide(monkeypatch, "ddh.codes._hamming")
    assert codes.kernel() == "numpy"
    monkeypatch.setenv("DDH_KERNEL", "native")
    with pytest.raises(InputError, match="DDH_KERNEL=native cannot run here"):
        codes.kernel()


def test_unknown_kernel(monkeypatch):
    monkeypatch.setenv("DDH_KERNEL", "quantum")
    with pytest.raises(InputError, match="DDH_KERNEL=quantum: choose one of native, numpy"):
        codes.kernel()


def test_an_instruction_set_of_other_processors(monkeypatch):
    variants = pytest.importorskip("ddh.codes.kernel_native").VARIANTS
    other = next(name for name in kernels.INSTRUCTION_SETS if name not in variants)
    monkeypatch.setenv("DDH_KERNEL", other)
    with pytest.raises(InputError, match=f"DDH_KERNEL={other} cannot run here: this processor"):
        codes.kernel()


def test_names(monkeypatch):
    monkeypatch.setenv("DDH_KERNEL", "plain")
    assert codes.kernel() == "native plain"
    monkeypatch.setenv("DDH_KERNEL", " NumPy ")
    assert codes.kernel() == "numpy"


def test_searching_imports_no_more_than_it_needs():
    program = (
        "import sys, numpy as np, ddh.codes as c;"
        "c.search(np.zeros((2, 8), np.uint8), np.zeros((3, 8), np.uint8), 1);"
        "print([m for m in ('torch', 'faiss', 'sklearn', 'scipy', 'click') if m in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert output.stdout.strip() == "[]", output.stderr


def test_the_check_for_bare_machines(monkeypatch):
    """One round of tests/codes/native_check.py, which people run where there is no pytest."""
    monkeypatch.setattr(native_check, "WIDTHS", [3, 8, 32])
    monkeypatch.setattr(native_check, "ROWS", [65, 1000])
    monkeypatch.setenv("DDH_KERNEL", "plain")
    assert native_check.check("plain") > 10


class TestWrongCallsOfTheExtension:
    """The C functions trust nobody about the size of a buffer."""

    rows = bytes(80)

    @pytest.mark.parametrize(
        "arguments",
        [
            ("none", 0, rows, rows, 8, 1, bytearray(40), bytearray(80)),
            ("plain", 0, rows, rows, 9, 1, bytearray(40), bytearray(80)),
            ("plain", 0, rows, rows, 0, 1, bytearray(40), bytearray(80)),
            ("plain", 0, rows, rows, 8, 11, bytearray(440), bytearray(880)),
            ("plain", 0, rows, rows, 8, 1, bytearray(39), bytearray(80)),
        ],
    )
    def test_top_k(self, arguments):
        extension = pytest.importorskip("ddh.codes._hamming")
        with pytest.raises(ValueError, match=r"."):
            extension.top_k(*arguments)

    def test_read_only_results(self):
        extension = pytest.importorskip("ddh.codes._hamming")
        with pytest.raises((TypeError, BufferError)):
            extension.top_k("plain", 0, self.rows, self.rows, 8, 1, bytes(40), bytes(80))

    def test_lists(self):
        extension = pytest.importorskip("ddh.codes._hamming")
        import numpy as np

        offsets, ids = np.array([0, 10]), np.arange(10, dtype=np.uint32)
        probes = np.zeros(10, dtype=np.uint32)
        extension.list_search("plain", self.rows, self.rows, 8, probes, offsets, ids, 1)
        for bad in [(probes + np.uint32(1), offsets), (probes, offsets - 1), (probes, offsets + 1)]:
            with pytest.raises(ValueError, match=r"."):
                extension.list_search("plain", self.rows, self.rows, 8, *bad, ids, 1)
