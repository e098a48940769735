"""The graph S of a run: built by Alg. 1, kept in the run's folder, shared by fits that agree."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ddh._core.arrays import l2_normalize
from ddh._core.atomic import atomic_path, write_atomic
from ddh._core.errors import InputError, ModelError
from ddh.neighbours import approximate_labels, pairwise_labels, statistics
from ddh.train.distributed import current
from ddh.train.identity import arrays_digest
from ddh.train.run_folder import read_json
from ddh.train.settings import Settings

Graph = tuple[sparse.csr_array, dict[str, Any]]

_shared: ContextVar[dict[Any, Graph] | None] = ContextVar("shared graphs", default=None)


@contextmanager
def shared_graphs(graphs: dict[Any, Graph]) -> Iterator[None]:
    """Within it, fits take their graph from `graphs` if one of the same features and
    neighbourhoods is there, and leave it there otherwise."""
    token = _shared.set(graphs)
    try:
        yield
    finally:
        _shared.reset(token)


@dataclass(frozen=True)
class Labelling:
    """How S is built from features."""

    settings: Settings
    gpu: bool
    approximate: bool

    @property
    def neighbourhoods(self) -> dict[str, Any]:
        """The settings that S depends on."""
        names = ("k1", "k2", "centre", "normalize")
        return {name: getattr(self.settings, name) for name in names}

    def build(self, features: NDArray[np.floating], folder: Path | None = None) -> Graph:
        """S by Alg. 1 and its statistics; `folder` may take scratch files."""
        values = l2_normalize(features) if self.settings.normalize else features
        k1, k2, centre = self.settings.k1, self.settings.k2, self.settings.centre
        report = None
        if self.approximate:
            graph, report = approximate_labels(values, k1, k2, centre=centre, folder=folder)
        else:
            device = "cuda" if self.gpu else None
            graph = pairwise_labels(values, k1, k2, centre=centre, device=device)
        return graph, statistics(graph, approximation=report).to_dict()

    def shared(self, features: NDArray[np.floating], folder: Path | None) -> Graph:
        """The same, new or shared."""
        graphs = _shared.get()
        if graphs is None:
            return self.build(features, folder)
        key = (arrays_digest(features), self.approximate, *self.neighbourhoods.values())
        if key not in graphs:
            graphs[key] = self.build(features, folder)
        return graphs[key]


def neighbourhood_graph(
    features: NDArray[np.floating], labelling: Labelling, *, saved: Path | None, resume: bool
) -> Graph:
    """S (of several processes, the rows of this one) and its statistics, or from the folder where
    an interrupted run left them."""
    processes = current()
    if saved is None and not processes.is_single:
        raise InputError("several processes need a checkpoint_dir that all of them see")
    folder = None if saved is None else saved.parent
    graphs: list[sparse.csr_array] = []

    def part(rank: int) -> Path:
        assert saved is not None
        return saved.with_name(f"{saved.stem}-process-{rank}.npz")

    def build() -> dict[str, Any]:
        if saved is not None and resume and saved.is_file():
            graph, summary = read_graph(saved), read_json(saved.with_suffix(".json"))
        else:
            graph, summary = labelling.shared(features, folder)
            if saved is not None:
                write_atomic(saved.with_suffix(".json"), json.dumps(summary).encode())
                with atomic_path(saved) as temporary, temporary.open("wb") as stream:
                    sparse.save_npz(stream, graph)
        graphs.append(graph)
        if not processes.is_single:
            for rank in range(processes.size):
                rows = processes.shard(len(features), rank)
                sparse.save_npz(part(rank), graph[rows], compressed=False)
        return summary

    summary = processes.run_on_main(build)
    return (graphs[0] if processes.is_single else read_graph(part(processes.rank))), summary


def read_graph(path: Path) -> sparse.csr_array:
    """A graph from the folder of a run."""
    try:
        return sparse.csr_array(sparse.load_npz(path))
    except Exception as error:  # zip files have many ways to be damaged
        raise ModelError(f"the graph {path} is damaged; delete it to start again") from error
