# %% [markdown]
# # Keep the codes in Milvus
#
# For collections that outgrow one machine. The example uses Milvus Lite, a Milvus in a file (`pip
# install "ddh[milvus]" "milvus-lite==2.5.1" "setuptools<82"`); for a server give its address,
# such as `milvus://localhost:19530#digits`, in `DDH_MILVUS`. Nothing else changes.

# %%
import os

from sklearn.datasets import load_digits

import ddh.index
from ddh.hashers import ITQ

location = os.environ.get("DDH_MILVUS", "digits.db#digits")
features, labels = load_digits(return_X_y=True)
model = ITQ(bits=64, random_state=0).fit(features)
packed = model.encode(features)

# %%
index = ddh.index.open(location, bits=64)
keys = [f"digit-{number}" for number in range(len(packed))]
index.upsert(keys, packed, metadata=[{"label": int(label)} for label in labels])
for hit in index.search(packed[3], k=5, where={"label": 3})[0]:
    print(f"{hit.distance:3} bits  {hit.key}  {hit.metadata}")

# %% [markdown]
# Milvus breaks ties as it likes. ddh asks for more until the order is certain, so that every
# engine gives the same answers in the same order. Here is the local engine beside it:

# %%
with ddh.index.open("digits.index", bits=64) as local:
    local.upsert(keys, packed)
    same = [
        [hit.key for hit in answer] == [hit.key for hit in other]
        for answer, other in zip(
            index.search(packed[:20], k=10), local.search(packed[:20], k=10), strict=True
        )
    ]
print("same answers:", all(same))
index.close()
