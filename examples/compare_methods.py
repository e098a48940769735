# %% [markdown]
# # Compare hashing methods
#
# Every method of ddh has one contract: `fit`, `transform` to -1 and +1, `encode` to packed bytes.
# That makes a fair comparison short: the same features, queries, code length and measure for all.

# %%
import time

import numpy as np
from sklearn.datasets import load_digits

from ddh.evaluation import mean_average_precision
from ddh.hashers import DDH, ITQ, LSH, PCAH, SDH, SphH

features, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(features))
queries, database = order[:300], order[300:]

# %% [markdown]
# Queries are never learnt from. SDH is given labels; the others see pixels alone.
#
# Hamming distances tie all the time, and the order inside a tie is luck. The score is the mean
# over all orders, in closed form.

# %%
methods = [LSH(32), PCAH(32), SphH(32), ITQ(32), DDH(32, epochs=20), SDH(32)]
for method in methods:
    started = time.perf_counter()
    method.fit(features[database], labels[database] if method.labels == "required" else None)
    seconds = time.perf_counter() - started
    score = mean_average_precision(
        method.transform(features[queries]), method.transform(features[database]),
        labels[queries], labels[database], k=100,
    )  # fmt: skip
    print(
        f"{type(method).__name__:5} {float(score):.3f}  labels: {method.labels:9} {seconds:5.2f} s"
    )

# %% [markdown]
# `DDH` has only 20 epochs here; its default on so few rows is more. `ddh methods` lists all
# methods, and `ddh bench methods` measures them.
