"""The example scripts run and say what they promise; their notebooks are in step with them."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
import make_notebooks  # noqa: E402

SCRIPTS = make_notebooks.scripts()


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs an example in an empty folder; what it printed."""
    monkeypatch.chdir(tmp_path)

    def example(name: str) -> str:
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out

    return example


def test_fit_on_your_folder(run, tmp_path):
    shown = run("fit_on_your_folder")
    assert "60 pictures, loss" in shown
    hits = re.findall(r"bits differ  (\d)/", shown)
    assert len(hits) == 8
    assert hits.count("0") >= 6
    assert (tmp_path / "found.png").is_file()
    assert (tmp_path / "digits.ddh" / "model.json").is_file()


def test_near_duplicates(run):
    assert "6 of 6 copies found, 0 other groups" in run("near_duplicates")


def test_compare_methods(run):
    scores = {
        name: float(score) for name, score in re.findall(r"(\w+) +(0\.\d+)", run("compare_methods"))
    }
    assert scores["SDH"] > scores["DDH"] > scores["ITQ"] > scores["LSH"] > scores["PCAH"]


def test_with_faiss(run):
    shown = run("with_faiss")
    assert "same distances: True" in shown
    assert "0 bits  digit-3, a 3" in shown


def test_with_postgresql(run, postgres, monkeypatch):
    monkeypatch.setenv("DDH_POSTGRES", postgres)
    shown = run("with_postgresql")
    assert "1797 rows" in shown
    by_index, by_sql = re.findall(r"^ +0 bits  digit-3\b.*$", shown, re.MULTILINE)
    assert by_index.endswith("{'label': 3}")
    assert by_sql.endswith("digit-3")


def test_with_milvus(run, milvus_lite, monkeypatch):
    monkeypatch.delenv("DDH_MILVUS", raising=False)
    assert "same answers: True" in run("with_milvus")


def test_scikit_learn_pipeline(run):
    shown = run("scikit_learn_pipeline")
    assert float(re.search(r"held-out rows: (0\.\d+)", shown)[1]) > 0.9
    assert "'codes__bits'" in shown


def test_every_example_has_a_test():
    assert {f"test_{script.stem}" for script in SCRIPTS} <= set(globals())


# -- notebooks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_notebooks_are_in_step(script):
    written = make_notebooks.target(script).read_text(encoding="utf-8")
    assert written == make_notebooks.text(script), "run `make notebooks`"


def test_no_notebook_is_left_behind():
    found = {path.stem for path in (EXAMPLES / "notebooks").glob("*.ipynb")}
    assert found == {script.stem for script in SCRIPTS}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_notebooks_are_valid(script):
    """The rules of notebook format 4.5, and code cells that are the script's code."""
    document = json.loads(make_notebooks.text(script))
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    cells = document["cells"]
    assert cells[0]["cell_type"] == "markdown"
    assert cells[0]["source"][0].startswith("# ")
    assert len({cell["id"] for cell in cells}) == len(cells)
    for cell in cells:
        assert re.fullmatch(r"[a-zA-Z0-9-_]{1,64}", cell["id"])
        assert all(line.endswith("\n") for line in cell["source"][:-1])
        code = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | code
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    lines = [line for line in "\n".join(code).splitlines() if line.strip()]
    script_lines = script.read_text().splitlines()
    assert lines == [line for line in script_lines if line.strip() and not line.startswith("#")]


def test_cells_of_a_script():
    script = "# %% [markdown]\n# # Title\n#\n# text\n\n# %%\nx = 1\n\n\ny = 2\n\n# %%\n"
    cells = make_notebooks.notebook(script, "a_b")["cells"]
    assert [cell["cell_type"] for cell in cells] == ["markdown", "code", "code"]
    assert cells[0]["source"] == ["# Title\n", "\n", "text"]
    assert cells[1]["source"] == ["x = 1\n", "\n", "\n", "y = 2"]
    assert cells[2]["source"] == []
    assert cells[1]["id"] == "a-b-1"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("x = 1\n# %%\n", "begins with"),
        ("# %% [raw]\n", "not '\\[raw\\]'"),
        ("# %% [markdown]\nx = 1\n", "is a comment"),
    ],
)
def test_what_is_no_script_is_refused(script, message):
    with pytest.raises(ValueError, match=message):
        make_notebooks.notebook(script, "name")
