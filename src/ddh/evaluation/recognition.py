"""Recognition with a support vector machine, as in the paper's Table 6.

C is chosen on the validation images, the machine is then fitted on training and validation
images together, and the test images are asked once. Bits go to a linear machine; histograms of
visual words to the kernel exp(-chi^2 / mean chi^2) (Nilsback & Zisserman 2008).
"""

import time
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ddh._core.errors import InputError

Kernel = Literal["linear", "chi-square"]

# From a machine that hardly learns to one that hardly errs on its own images; both kernels see
# rows (or pairs of rows) of mean size 1, so one range serves for any features.
COSTS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


@dataclass(frozen=True)
class Recognition:
    """Accuracy on the test images, the C that validation chose, and the time it took."""

    accuracy: float
    validation_accuracy: float
    C: float
    fit_seconds: float
    predict_seconds: float
    kernel: Kernel
    predicted: NDArray[Any]

    def __str__(self) -> str:
        return (
            f"{self.accuracy:.1%} ({self.kernel} SVM, C = {self.C:g} by "
            f"{self.validation_accuracy:.1%} on validation; "
            f"fit {self.fit_seconds:.2f} s, predict {self.predict_seconds:.2f} s)"
        )


class Machine:
    """A support vector machine; `fit` keeps the model of one C."""

    model: Any

    def predict(self, compared: NDArray[Any]) -> NDArray[Any]:
        """The class of each row, from `compare`."""
        return np.asarray(self.model.predict(compared))


class LinearMachine(Machine):
    """One linear machine per class, each against the rest (liblinear).

    Rows are divided by the root of their mean squared length, so that C means the same for codes
    of any number of bits and for real-valued features.
    """

    def __init__(self, X: NDArray[Any]) -> None:
        self.length = float(np.sqrt(np.square(X).sum(axis=1).mean())) or 1.0
        self.rows = self.compare(X)

    def compare(self, X: NDArray[Any]) -> NDArray[Any]:
        """What the machine sees of new rows; it does not depend on C."""
        return X / self.length

    def fit(self, y: NDArray[Any], C: float) -> None:
        """Learn the classes of the rows."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.svm import LinearSVC

        self.model = LinearSVC(C=C, dual=True, random_state=0, max_iter=10_000)
        with warnings.catch_warnings():
            # A C that does not converge is a bad C: validation decides, not a warning.
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.model.fit(self.rows, y)


class ChiSquareMachine(Machine):
    """A machine with the kernel exp(-chi^2 / mean chi^2) on rows that are histograms.

    The mean is taken over pairs of different training images.
    """

    def __init__(self, X: NDArray[Any]) -> None:
        self.rows = X
        distance = chi_square(X, X)
        self.mean = float(distance.sum() / max(len(X) * (len(X) - 1), 1)) or 1.0
        self.kernel = np.exp(-distance / self.mean)

    def compare(self, X: NDArray[Any]) -> NDArray[Any]:
        """The kernel between new rows and the training rows; it does not depend on C."""
        return np.exp(-chi_square(X, self.rows) / self.mean)

    def fit(self, y: NDArray[Any], C: float) -> None:
        """Learn the classes of the rows."""
        from sklearn.svm import SVC

        self.model = SVC(C=C, kernel="precomputed", cache_size=500).fit(self.kernel, y)


MACHINES: dict[Kernel, Any] = {"linear": LinearMachine, "chi-square": ChiSquareMachine}


def chi_square(A: NDArray[Any], B: NDArray[Any]) -> NDArray[np.float64]:
    """1/2 sum (a - b)^2 / (a + b) between the rows of A and of B; 0/0 counts as 0."""
    from sklearn.metrics.pairwise import additive_chi2_kernel

    return np.asarray(additive_chi2_kernel(A.astype(np.float64), B.astype(np.float64)) / -2.0)


def recognise(
    train: tuple[ArrayLike, ArrayLike],
    validation: tuple[ArrayLike, ArrayLike],
    test: tuple[ArrayLike, ArrayLike],
    *,
    kernel: Kernel = "linear",
    costs: tuple[float, ...] = COSTS,
) -> Recognition:
    """Choose C on validation, fit on train + validation, ask the test images once.

    Each part is (features, labels); features are +-1 codes or any real vectors, for
    kernel="chi-square" histograms. Of equal validation results the smallest C is taken.
    """
    if kernel not in MACHINES:
        raise InputError(f"the kernel is one of {', '.join(MACHINES)}, not {kernel!r}")
    parts = [_part(*part) for part in (train, validation, test)]
    (X_train, y_train), (X_validation, y_validation), (X_test, y_test) = parts
    if kernel == "chi-square" and any((X < 0).any() for X, _ in parts):
        raise InputError("the chi-square kernel compares histograms: no value below 0")
    trial = MACHINES[kernel](X_train)
    compared = trial.compare(X_validation)
    found = {}
    for C in costs:
        trial.fit(y_train, C)
        found[C] = float(np.mean(trial.predict(compared) == y_validation))
    best = max(found, key=lambda C: (found[C], -C))
    X, y = np.concatenate([X_train, X_validation]), np.concatenate([y_train, y_validation])
    start = time.perf_counter()
    final = MACHINES[kernel](X)
    final.fit(y, best)
    fitted = time.perf_counter()
    predicted = final.predict(final.compare(X_test))
    done = time.perf_counter()
    accuracy = float(np.mean(predicted == y_test))
    return Recognition(
        accuracy, found[best], best, fitted - start, done - fitted, kernel, predicted
    )


def _part(features: ArrayLike, labels: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    X, y = np.asarray(features), np.asarray(labels)
    if X.ndim != 2 or y.shape != (len(X),) or not len(X):
        raise InputError(
            f"recognition needs (n, d) features and n classes, not {X.shape} and {y.shape}"
        )
    if not np.isfinite(X).all():
        raise InputError("features hold NaN or infinity; remove or repair those rows")
    return (X.astype(np.float64) if X.dtype.kind in "iub" else X), y
