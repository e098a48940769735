"""Which pictures are the same: verified duplicates of picture files, and groups of codes.

from ddh.duplicates import find_duplicates

for group in find_duplicates("photos/"):
    print(group.keep.path, [(member.picture.path, member.kind) for member in group.members])
"""

from ddh.duplicates.actions import Outcome, Removal, act, removals, undo
from ddh.duplicates.finding import find_duplicates
from ddh.duplicates.grouping import DuplicateGroup, find_groups, group_codes
from ddh.duplicates.keeping import KEEP
from ddh.duplicates.results import KINDS, Duplicates, Group, Member, Picture, Similar, Skipped

__all__ = [
    "KEEP",
    "KINDS",
    "DuplicateGroup",
    "Duplicates",
    "Group",
    "Member",
    "Outcome",
    "Picture",
    "Removal",
    "Similar",
    "Skipped",
    "act",
    "find_duplicates",
    "find_groups",
    "group_codes",
    "removals",
    "undo",
]
