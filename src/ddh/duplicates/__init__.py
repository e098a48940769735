"""Which pictures are the same: groups of near-duplicates, and which picture of each to keep.

import ddh.index
from ddh.duplicates import find_groups

with ddh.index.open("photos.index") as index:
    for group in find_groups(index, radius=2):
        print([hit.key for hit in group])
"""

from ddh.duplicates.grouping import DuplicateGroup, find_groups, group_codes
from ddh.duplicates.ranking import FileSize, RankedPicture, measure, rank

__all__ = [
    "DuplicateGroup",
    "FileSize",
    "RankedPicture",
    "find_groups",
    "group_codes",
    "measure",
    "rank",
]
