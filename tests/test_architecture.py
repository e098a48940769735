"""The rooms of the house: imports point one way, and searching pays for nothing it does not use."""

import ast
import subprocess
import sys

import pytest

# A room may use the rooms before it, never those after it.
ROOMS = [
    "errors", "whole_files", "unit_rows", "jobs", "progress", "output", "lazy_group", "codes",
    "images", "backbones", "neighbours", "objective", "training", "hashers", "index", "cluster",
    "evaluation", "descriptors", "serve", "bench", "cli",
]  # fmt: skip


def imports(path):
    """Modules of ddh that a file imports, at its top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("ddh."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("ddh."):
                    yield alias.name.split(".")[1]


def test_imports_point_one_way(repository):
    package = repository / "src" / "ddh"
    wrong = []
    for path in package.rglob("*.py"):
        room = path.relative_to(package).parts[0].removesuffix(".py")
        if room not in ROOMS:
            continue
        for target in imports(path):
            if ROOMS.index(target) > ROOMS.index(room):
                wrong.append(f"{path.relative_to(package)} uses {target}")
    assert not wrong


def test_every_room_is_in_the_order(repository):
    rooms = {path.name for path in (repository / "src" / "ddh").iterdir() if path.is_dir()}
    assert rooms - {"__pycache__"} <= set(ROOMS)


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
