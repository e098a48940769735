"""Encoding and indexing on a Ray cluster, from any place that fsspec reads into any index engine.

    from ddh.cluster import Cluster, IndexTarget, ModelFiles, encode_on_cluster, open_place

    model = ModelFiles.read(Path("photos.ddh"))
    target = IndexTarget("postgresql://host/db", model.bits, model.id)
    encode_on_cluster(open_place("s3://bucket/photos"), model, target, Cluster("auto"))

Ray is imported when a job starts, and not before.
"""

from ddh.cluster.encoder import ModelFiles
from ddh.cluster.job import BATCH_SIZE, Cluster, encode_on_cluster
from ddh.cluster.sources import is_url, open_place
from ddh.cluster.targets import IndexTarget, Report, ShardTarget
from ddh.cluster.writing import settle_url

__all__ = [
    "BATCH_SIZE",
    "Cluster",
    "IndexTarget",
    "ModelFiles",
    "Report",
    "ShardTarget",
    "encode_on_cluster",
    "is_url",
    "open_place",
    "settle_url",
]
