# %% [markdown]
# # Learn codes for a folder of pictures
#
# ddh looks at pictures that nobody has labelled, finds out which belong together, and learns a code
# of a few bytes for each. Here the pictures are 60 handwritten digits, written to a folder first so
# that there is nothing to download. **Put the name of your own folder in the next cell** and leave
# out the one after it.

# %%
from pathlib import Path

from PIL import Image

import ddh
import ddh.index
from ddh.images import ImageFolder, SheetRow, contact_sheet, digits

photos = Path("digits")

# %%
data = digits()
for number, (pixels, label) in enumerate(zip(data.images.pixels[:60], data.labels, strict=False)):
    file = photos / str(label) / f"{number}.png"
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).resize((64, 64)).save(file)

# %% [markdown]
# ## Learn
#
# Features come from EfficientNet-Lite0, whose weights pip has brought along. The defaults suit
# photographs: leave out `size` and `epochs`, which make this example quick. Labels are not used;
# the folders are there for our own eyes.

# %%
model = ddh.DDH(bits=64, size=64, epochs=100, random_state=0).fit(photos)
print(f"{model.images_} pictures, loss {model.history_[-1]['loss']:.3f}")
model.save("digits.ddh")

# %% [markdown]
# ## Keep the codes and search them
#
# An index keeps codes beside keys, paths and whatever you like to add. `encode_images` streams: it
# skips files that cannot be read and says why.

# %%
folder = ImageFolder(photos)
with ddh.index.open("digits.index", bits=model.bits, model_id=model.model_id) as index:
    for batch in model.encode_images(folder):
        index.upsert([folder.names[i] for i in batch.indices], batch.codes)
        for failure in batch.failures:
            print("skipped", failure.name, failure.reason)
    query = folder.names[0]
    hits = index.search(index.get(query).code, k=8)[0]
for hit in hits:
    print(f"{hit.distance:3} bits differ  {hit.key}")

# %% [markdown]
# The first hit is the query itself. The others on a contact sheet:

# %%
row = SheetRow(
    Image.open(photos / query),
    [Image.open(photos / hit.key) for hit in hits[1:]],
    [f"{hit.distance} bits" for hit in hits[1:]],
    caption="query",
)
contact_sheet([row], "found.png", title="Nearest by 64-bit codes")
Image.open("found.png")

# %% [markdown]
# The same on the command line:
#
# ```
# ddh fit digits/ -o digits.ddh
# ddh index add digits/ --index digits.index --model digits.ddh
# ddh search digits/0/0.png --index digits.index
# ddh serve digits.index --open
# ```
