"""Pictures with the statistics of photographs, made from a seed."""

import numpy as np
from PIL import Image, ImageDraw


def photograph(seed: int, size: tuple[int, int] = (320, 240)) -> Image.Image:
    """Soft coloured clouds at several scales, with shapes in front of them."""
    rng = np.random.default_rng(seed)
    total = np.zeros((size[1], size[0], 3))
    for cells, weight in ((4, 1.0), (9, 0.7), (21, 0.5), (47, 0.3)):
        noise = rng.integers(0, 256, (cells, cells, 3), dtype=np.uint8)
        layer = Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC)
        total += weight * (np.asarray(layer, float) - 128)
    image = Image.fromarray(np.clip(total * 0.7 + 128, 0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(12):
        x, y = rng.uniform(0, size[0]), rng.uniform(0, size[1])
        w, h = rng.uniform(8, 60, 2)
        shape = draw.ellipse if rng.random() < 0.5 else draw.rectangle
        shape((x, y, x + w, y + h), fill=tuple(rng.integers(0, 256, 3).tolist()))
    return image
