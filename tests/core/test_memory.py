"""The memory that a process may use: the machine's, or less in a container."""

import pytest

from ddh._core import memory


def test_the_machine_has_some(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "CONTAINER", tmp_path / "absent")
    assert memory.memory_bytes() > 1 << 28


@pytest.mark.parametrize(("written", "limited"), [("1073741824\n", True), ("max\n", False)])
def test_a_container_may_limit_it(monkeypatch, tmp_path, written, limited):
    monkeypatch.setattr(memory, "CONTAINER", tmp_path / "memory.max")
    (tmp_path / "memory.max").write_text(written)
    assert (memory.memory_bytes() == 1 << 30) == limited


def test_a_system_that_does_not_tell(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "CONTAINER", tmp_path / "absent")
    monkeypatch.delattr(memory.os, "sysconf")
    assert memory.memory_bytes() == memory.USUAL
