"""An index of codes: rows in, nearest rows out, on this machine or in a real database.

    import ddh.index

    with ddh.index.open("photos.index", bits=64) as index:
        index.add(keys, codes)
        for hit in index.search(query, k=10)[0]:
            print(hit.key, hit.distance)

Searching never imports torch.
"""

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from ddh._core.errors import MissingDependency
from ddh.index.base import Index
from ddh.index.header import BIT_ORDER, IndexNotFound, OpenOptions
from ddh.index.rows import FileStamp, Hit, IndexInfo, IndexRecoded, Row, Written

__all__ = [
    "open",
    "Index",
    "IndexNotFound",
    "IndexRecoded",
    "Hit",
    "Row",
    "FileStamp",
    "IndexInfo",
    "Written",
]


def open(
    location: str | os.PathLike[str],
    *,
    bits: int | None = None,
    model_id: str | None = None,
    bit_order: str = BIT_ORDER,
    create: bool = True,
    approximate: bool = False,
    features: int | None = None,
) -> Index:
    """Open an index, or make it where there is none.

    Parameters
    ----------
    location : str or path
        A folder (`photos.index`), `postgresql://user@host/database#name`,
        `milvus://host:19530/database#name` (or `http://`, `https://`), or a Milvus Lite file
        (`photos.db#name`); the name after `#` is `ddh` where it is left out.
    bits, model_id, bit_order
        Length of the codes (a new index needs it), the model that makes them, and their bit
        order; an existing index is refused if what you give does not fit it.
    create : bool
        Make a missing index; otherwise it is an error.
    approximate : bool
        Have the engine keep an approximate structure too (HNSW in PostgreSQL, IVF in Milvus) for
        searches that ask for it. A local index makes its lists in memory when they are asked for.
    features : int, optional
        Components of features to store beside each code, one byte each, when the index is made:
        64 to 256. Searches with features are then ordered almost as by the features themselves.

    Returns
    -------
    Index
    """
    text = os.fspath(location)
    options = OpenOptions(bits, model_id, bit_order, create, approximate, features)
    if text.startswith(("postgresql://", "postgres://")):
        return _engine("postgres", "psycopg")(text, options)
    file = Path(text.partition("#")[0])
    is_lite_file = file.suffix == ".db" and not file.is_dir()
    if text.startswith(("milvus://", "http://", "https://")) or is_lite_file:
        return _engine("milvus", "pymilvus")(text, options)
    return _engine("local")(text, options)


def _engine(name: str, library: str | None = None) -> Callable[[str, OpenOptions], Index]:
    """The class of an engine; its module is imported when it is asked for."""
    try:
        module = import_module(f"ddh.index.{name}")
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise MissingDependency(f'this index needs {library}: pip install "ddh[{name}]"') from error
    engine: Callable[[str, OpenOptions], Index] = getattr(module, f"{name.capitalize()}Index")
    return engine
