# %% [markdown]
# # Keep the codes in PostgreSQL
#
# Codes beside your other tables, behind the backups and permissions that are there already. ddh
# uses pgvector where the server has it, and plain PostgreSQL (14 or newer) where it has not;
# answers are the same. You need `pip install "ddh[postgres]"` and a server: `DDH_POSTGRES` says
# where it is.

# %%
import os

import psycopg
from sklearn.datasets import load_digits

import ddh.index
from ddh.hashers import ITQ

server = os.environ.get("DDH_POSTGRES", "postgresql://postgres@localhost/postgres")
location = f"{server}#digits"  # the name after # is that of the index
features, labels = load_digits(return_X_y=True)
model = ITQ(bits=64, random_state=0).fit(features)
packed = model.encode(features)

# %% [markdown]
# ## The same index as ever
#
# Tables are made on first use. `upsert` may be repeated: rows are replaced by their keys.

# %%
with ddh.index.open(location, bits=64) as index:
    keys = [f"digit-{number}" for number in range(len(packed))]
    index.upsert(keys, packed, metadata=[{"label": int(label)} for label in labels])
    print(index.info().rows, "rows,", index.info().details)
    for hit in index.search(packed[3], k=5, where={"label": 3})[0]:
        print(f"{hit.distance:3} bits  {hit.key}  {hit.metadata}")

# %% [markdown]
# ## From SQL
#
# A code is a `bit(64)` value in `NAME_rows`, its first bit first. So any program that speaks SQL
# can rank:

# %%
query = "".join(f"{byte:08b}" for byte in packed[3])
ranking = """
    SELECT key, bit_count(code # %s::bit(64)) AS distance
    FROM digits_rows ORDER BY distance, key LIMIT 5
"""
with psycopg.connect(server) as database:
    for key, distance in database.execute(ranking, [query]):
        print(f"{distance:3} bits  {key}")
