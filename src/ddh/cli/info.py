"""`ddh info`: what a file holds, or what this installation can do."""

import json
import platform
from pathlib import Path
from typing import Any

import click

import ddh
from ddh._core.errors import InputError
from ddh._core.output import emit, json_option
from ddh.cli.doctor import EXTRAS, requirements, version
from ddh.cli.options import EXISTING


@click.command()
@click.argument("path", required=False, type=EXISTING)
@json_option
def info(path: Path | None, as_json: bool) -> None:
    """Describe a model, an index or a codes file; without PATH, this installation.

    \b
    ddh info
    ddh info photos.ddh
    ddh info codes.npz --json
    """
    document = _installation() if path is None else describe(path)
    emit(document, as_text(document), as_json)


def describe(path: Path) -> dict[str, Any]:
    """What a path holds, by looking at it."""
    if (path / "model.json").is_file():
        from ddh.hashers import storage

        description, arrays, model_id = storage.read(path)
        shapes = {name: list(array.shape) for name, array in arrays.items() if "." not in name}
        size = sum(file.stat().st_size for file in path.iterdir())
        return {"kind": "model", "id": model_id, **description, "bytes": size, "arrays": shapes}
    if path.suffix == ".npz":
        import numpy as np

        with np.load(path, allow_pickle=False) as file:
            if "codes" not in file or "bits" not in file:
                raise InputError(f"{path} is not a codes file written by `ddh encode`")
            return {
                "kind": "codes", "images": len(file["names"]), "bits": int(file["bits"]),
                "bytes": int(file["codes"].nbytes), "model_id": str(file["model_id"]),
                "bit_order": str(file["bit_order"]),
            }  # fmt: skip
    from ddh.index import open as open_index

    try:
        with open_index(path, create=False) as index:
            return {"kind": "index", **vars(index.info())}
    except InputError as error:
        raise InputError(f"{path} is not a model, a codes file or an index: {error}") from error


def _installation() -> dict[str, Any]:
    from ddh.codes import kernel
    from ddh.neighbours.native import available

    wanted = requirements()
    return {
        "kind": "installation",
        "ddh": ddh.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "hamming kernel": kernel(),
        "overlap kernel": "native" if available() else "scipy",
        "libraries": {r.distribution: version(r.distribution) for r in wanted if not r.extra},
        "optional": {r.distribution: version(r.distribution) for r in wanted if r.extra in EXTRAS},
    }


def as_text(document: dict[str, Any], indent: str = "") -> str:
    """Nested values as an indented list; long lists are cut."""
    lines = []
    for key, value in document.items():
        if isinstance(value, dict):
            lines += [f"{indent}{key}:", as_text(value, indent + "  ")] if value else []
        elif isinstance(value, list) and len(value) > 8:
            lines.append(f"{indent}{key}: {len(value)} entries")
        elif value is not None:
            shown = json.dumps(value) if isinstance(value, list) else value
            lines.append(f"{indent}{key}: {shown}")
    return "\n".join(lines)
