"""Imports between packages point one way, and searching does not pay for what it does not use."""

import ast
import subprocess
import sys

import pytest

# A package may import the packages before it, never those after it.
PACKAGES = [
    "_core", "codes", "images", "backbones", "neighbours", "objective", "train", "pretrain",
    "hashers", "index", "duplicates", "cluster", "evaluation", "descriptors", "serve", "bench",
    "cli",
]  # fmt: skip


def imported(source):
    """Packages of ddh that a source text imports, at its top or inside functions."""
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module == "ddh":
            names = [f"ddh.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            top, _, rest = name.partition(".")
            if top == "ddh" and rest.split(".")[0] in PACKAGES:
                yield rest.split(".")[0]


@pytest.mark.parametrize(
    "statement",
    ["import ddh.cli", "import ddh.cli.fit as f", "from ddh.cli import fit", "from ddh import cli"],
)
def test_every_form_of_import_is_seen(statement):
    assert list(imported(f"def f():\n    {statement}")) == ["cli"]


def test_imports_point_one_way(repository):
    package = repository / "src" / "ddh"
    wrong = []
    for path in package.rglob("*.py"):
        home = path.relative_to(package).parts[0]
        if home not in PACKAGES:
            continue
        for target in imported(path.read_text()):
            if PACKAGES.index(target) > PACKAGES.index(home):
                wrong.append(f"{path.relative_to(package)} uses {target}")
    assert not wrong


def test_every_package_is_in_the_order(repository):
    found = {path.name for path in (repository / "src" / "ddh").iterdir() if path.is_dir()}
    assert found - {"__pycache__"} <= set(PACKAGES)


@pytest.mark.parametrize(
    "statement",
    [
        "import ddh",
        "import ddh.codes, ddh.index",
        "import ddh.cli, click; ddh.cli.cli.get_command(click.Context(ddh.cli.cli), 'search')",
        "import numpy as n, ddh.codes; z = n.zeros((3, 8), n.uint8); ddh.codes.search(z, z, 2)",
        "from ddh.hashers import LSH; from numpy import eye; LSH(4).fit(eye(8)).encode(eye(8))",
        "from ddh.evaluation import mean_average_precision",
    ],
)
def test_searching_does_not_import_torch(statement):
    code = f"{statement}; import sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
