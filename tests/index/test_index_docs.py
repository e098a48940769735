"""The Python examples of docs/index.md run as they stand."""

import re

import pytest


def test_the_examples_run(repository, tmp_path, monkeypatch, capsys):
    pytest.importorskip("pyarrow")
    page = (repository / "docs" / "index.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 4
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/index.md", "exec"), names)
    shown = capsys.readouterr().out
    assert "0 photo-3.jpg" in shown
    assert "holds codes of 64 bits, yours have 128" in shown
    assert (tmp_path / "photos.faiss").is_file()
