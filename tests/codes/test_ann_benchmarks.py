"""The module for ann-benchmarks: every entry of its configuration runs beside its peers."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "examples" / "ann_benchmarks"


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_all_algorithms_run_on_the_same_codes():
    rng = np.random.default_rng(0)
    centres = rng.random((20, 64)) < 0.5
    rows = centres[rng.integers(20, size=3000)] ^ (rng.random((3000, 64)) < 0.1)
    results = load("run").measure(rows, rows[:20], 5)
    recall = {name: value for name, _, value, _ in results}
    assert {"DDHScan()", "DDHMultiIndex()", "DDHLists(probes=measured)"} <= set(recall)
    assert all(value == 1 for name, value in recall.items() if "DDH" in name or "flat" in name)
    assert all(rate > 0 for *_, rate in results)


def test_batches_and_other_metrics():
    module = load("module")
    rows = np.random.default_rng(0).random((300, 40)) < 0.5
    algorithm = module.DDHScan("hamming")
    algorithm.fit(rows)
    algorithm.batch_query(rows[:4], 3)
    assert algorithm.get_batch_results()[:, 0].tolist() == [0, 1, 2, 3]
    with pytest.raises(NotImplementedError):
        module.DDHScan("euclidean")


def test_the_configuration_names_classes_of_the_module():
    module = load("module")
    entries = yaml.safe_load((FOLDER / "config.yml").read_text())["bit"]["hamming"]
    assert all(hasattr(module, entry["constructor"]) for entry in entries)
