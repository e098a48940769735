"""scikit-learn's own estimator checks on every method of the registry."""

import inspect

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from ddh.hashers import create, method
from ddh.hashers.base import Hasher
from ddh.hashers.registry import MODULES

# Small enough for fifty checks per method; two bits, as some checks have two features.
SMALL = {
    "epochs": 1, "hidden": (4,), "iterations": 2, "trees": 2, "block_rows": 20, "device": "cpu",
    "settings": {"epochs": 1},
}  # fmt: skip

EXPECTED_FAILURES = {
    "check_dtype_object": "features that are not numbers raise InputError, which is a ValueError "
    "and not the TypeError that the check wants",
}


def small(name: str) -> Hasher:
    accepted = inspect.signature(method(name).__init__).parameters
    return create(name, bits=2, **{k: v for k, v in SMALL.items() if k in accepted})


def expected_failures(hasher: Hasher) -> dict[str, str]:
    return EXPECTED_FAILURES


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [small(name) for name in MODULES], expected_failed_checks=expected_failures
)
def test_scikit_learn_accepts_the_method(estimator: Hasher, check) -> None:
    check(estimator)
