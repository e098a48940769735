# %% [markdown]
# # Find near-duplicates
#
# The same photograph in another size, compressed again, a little brighter: the files differ in
# every byte, the codes in few bits. Two photographs that scikit-learn carries are cut into twelve
# pictures here, and six of them are stored a second time in a worse form. Which ones?

# %%
from pathlib import Path

from PIL import Image, ImageEnhance
from sklearn.datasets import load_sample_images

import ddh.index
from ddh.backbones import create
from ddh.duplicates import find_groups
from ddh.hashers import LSH
from ddh.images import ImageFolder
from ddh.train import extract

photos = Path("photos")
photos.mkdir(exist_ok=True)
tiles = [
    Image.fromarray(scene[y : y + 210, x : x + 210])
    for scene in load_sample_images().images
    for y in (0, 210)
    for x in (0, 210, 420)
]
for number, tile in enumerate(tiles):
    tile.save(photos / f"{number:02}.png")
    if number % 2 == 0:
        worse = ImageEnhance.Brightness(tile.resize((160, 160))).enhance(1.05)
        worse.save(photos / f"{number:02}-again.jpg", quality=75)

# %% [markdown]
# ## Codes that keep distances
#
# DDH pulls together what looks alike, which is right for search. To tell a copy from a look-alike
# we want the distances as the network has them: random planes (LSH) through its features, and
# long codes.

# %%
folder = ImageFolder(photos)
features = extract(create("efficientnet-lite0", size=128), folder).values
codes = LSH(bits=256, random_state=0).fit(features).encode(features)

# %% [markdown]
# ## Groups
#
# `duplicates` joins pictures that are linked by distances within a radius, exactly and without
# comparing each with each. How wide the radius should be, a few copies that you know will tell:

# %%
index = ddh.index.open("photos.index", bits=256)
index.upsert(folder.names, codes)
for hit in index.search(index.get("00.png").code, k=4)[0]:
    print(f"{hit.distance:3} bits  {hit.key}")

# %%
groups = find_groups(index, radius=52)
for group in groups:
    print("  ".join(hit.key for hit in group))

# %%
copies = {(f"{number:02}.png", f"{number:02}-again.jpg") for number in range(0, 12, 2)}
found = {tuple(sorted((hit.key for hit in group), reverse=True)) for group in groups}
print(f"{len(copies & found)} of {len(copies)} copies found, {len(found - copies)} other groups")
index.close()

# %% [markdown]
# Codes say that two pictures are alike, not that they are the same one. `ddh dedup photos/`
# verifies each pair on its pixels before it proposes to remove anything, and needs no codes.
