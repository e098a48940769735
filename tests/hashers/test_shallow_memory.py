"""Shallow methods fit 50,000 x 1280 features within 4 GB (DDH_SLOW=1), and small ones in step."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddh.hashers.registry import MODULES

SHALLOW = list(MODULES)[:7] + ["SSH", "SPLH", "LFH", "KSH", "SDH", "FastH"]
MEGABYTE = 2**20


def peaks(rows: int, dimensions: int, bits: int, names: list[str]) -> dict[str, int]:
    script = Path(__file__).with_name("shallow_memory.py")
    command = [sys.executable, str(script), str(rows), str(dimensions), str(bits), *names]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(answer.stdout)


def test_no_array_over_all_pairs_of_rows():
    """20,000 rows of 32: one rows x rows array of single bytes would be 400 MB."""
    report = peaks(20_000, 32, 8, SHALLOW)
    assert report["FastH"] - report["before"] < 300 * MEGABYTE


@pytest.mark.skipif(os.environ.get("DDH_SLOW") != "1", reason="minutes a method: set DDH_SLOW=1")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SHALLOW)
def test_fits_50_000_features_in_4_gigabytes(name: str):
    assert peaks(50_000, 1280, 64, [name])[name] < 4 * 1024 * MEGABYTE
