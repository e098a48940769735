# %% [markdown]
# # Use the codes with faiss
#
# Codes are plain bytes in the order of NumPy's `packbits`, which is the one that faiss reads.
# Nothing has to be converted, and both give the same distances.

# %%
import faiss
import numpy as np
from sklearn.datasets import load_digits

import ddh.index
from ddh import codes
from ddh.hashers import ITQ
from ddh.index import exports

features, labels = load_digits(return_X_y=True)
model = ITQ(bits=64, random_state=0).fit(features)
packed = model.encode(features)
print(packed.shape, packed.dtype)

# %% [markdown]
# ## Straight into a faiss index

# %%
flat = faiss.IndexBinaryFlat(model.bits)
flat.add(packed)
distances, rows = flat.search(packed[:100], 10)
ours = codes.search(packed[:100], packed, k=10)
print("same distances:", np.array_equal(distances, ours.distances))

# %% [markdown]
# faiss gives rows of equal distance in any order; `ddh.codes` always gives the smaller index first.
#
# ## From an index of ddh
#
# `exports.to_faiss` writes a file that any program with faiss can read, and returns the keys of
# its rows.

# %%
with ddh.index.open("digits.index", bits=64) as index:
    index.upsert([f"digit-{number}" for number in range(len(packed))], packed)
    flat, keys = exports.to_faiss(index, "digits.faiss")
again = faiss.read_index_binary("digits.faiss")
distances, rows = again.search(packed[3:4], 5)
for distance, row in zip(distances[0], rows[0], strict=True):
    print(f"{distance:3} bits  {keys[row]}, a {labels[row]}")
