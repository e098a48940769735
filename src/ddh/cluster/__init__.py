"""Encoding and indexing on a Ray cluster, from any source that fsspec reads into any index engine.

    from ddh.cluster import Cluster, ImageLocation, IndexTarget, ModelFiles, encode_on_cluster

    model = ModelFiles.read(Path("photos.ddh"))
    target = IndexTarget(ddh.index.open("postgresql://host/db", model_id=model.id))
    encode_on_cluster(ImageLocation("s3://bucket/photos"), model, target, Cluster("auto"))

Ray is imported when a job starts, and not before.
"""

from ddh.cluster.batches import Report
from ddh.cluster.encoder import ModelFiles
from ddh.cluster.pipeline import BATCH_SIZE, Cluster, encode_on_cluster
from ddh.cluster.sources import ImageLocation, bind_url, is_url
from ddh.cluster.targets import IndexTarget, ShardTarget

__all__ = [
    "BATCH_SIZE",
    "Cluster",
    "ImageLocation",
    "IndexTarget",
    "ModelFiles",
    "Report",
    "ShardTarget",
    "bind_url",
    "encode_on_cluster",
    "is_url",
]
