"""The paper's tables as data: what each one measures, and the figures that the paper prints.

Song, He, Fan & Gao, "Deep Discrete Hashing with Self-supervised Pairwise Labels" (ECML PKDD 2017).
`ddh.bench.retrieval_table` runs tables 2 to 5, `ddh.bench.table6` runs Table 6.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ddh._core.errors import InputError


@dataclass(frozen=True)
class Row:
    """A row of a table: its label there, the method's name here, and the printed mAP values.

    A `supervised` method is given the labels of the training images: of those that the protocol
    names, or of `labelled_per_class` of them, or of all. A method that is not `stochastic` runs
    with one seed only. Rows without printed values are not in the paper.
    """

    label: str
    method: str
    printed: tuple[float, ...] = ()
    supervised: bool = False
    stochastic: bool = True
    labelled_per_class: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PaperTable:
    """A retrieval table: one row per method, one column per code length in `bits`; mAP@`k`."""

    name: str
    number: int
    title: str
    data: str
    k: int
    bits: tuple[int, ...]
    rows: tuple[Row, ...]
    help: str = ""
    note: str = ""

    @property
    def short_help(self) -> str:
        """A line for the list of benches."""
        return f"{self.title} on {self.data}."

    def printed(self, row: Row, bits: int) -> float | None:
        """The figure in the paper, or None where the paper has none."""
        return row.printed[self.bits.index(bits)] if bits in self.bits and row.printed else None

    def only(self, names: str | None) -> "PaperTable":
        """Some of the rows, by label or method name; all of them for None."""
        return replace(self, rows=tuple(select(self.rows, names, self.name)))


def select(rows: Sequence[Any], names: str | None, table: str) -> list[Any]:
    """The rows of a table with these labels or methods, separated by commas; all for None."""
    known = [{row.label.lower(), row.method.lower()} for row in rows]
    if names is None:
        return list(rows)
    text = names.lower()
    for label in (row.label.lower() for row in rows):  # some have a comma themselves
        text = text.replace(label, label.replace(",", "\0"))
    wanted = {name.strip().replace("\0", ",") for name in text.split(",")}
    if unknown := wanted.difference(*known):
        choices = "; ".join(row.label for row in rows)
        raise InputError(f"{table} has no row {', '.join(sorted(unknown))}; its rows: {choices}")
    return [row for row, own in zip(rows, known, strict=True) if own & wanted]


# The tables compare mAP by kinds, which is what the paper's own binary labels are made for.
BINARY = {"targets": "binary"}
# All that the protocols give: every supervised row sees the same labels (CNNH takes 5,000 anyway).
ALL_LABELS = {"labelled": 5000}
# The paper's regulariser, without which a linear layer on a few thousand labelled images overfits.
REGULARISED = {"lambda2": 1e-3}
# A linear hash layer, which is what DDH has on frozen features.
LINEAR = {"hidden": ()}

TABLE2 = PaperTable(
    name="table2",
    number=2,
    title="Table 2: unsupervised hashing",
    data="CIFAR-10",
    k=1000,
    bits=(16, 32, 64),
    rows=(
        Row("KMH", "KMH", (0.136, 0.139, 0.145), stochastic=False),  # up to 100,000 images
        Row("SphH", "SphH", (0.145, 0.146, 0.154)),
        Row("SH", "SH", (0.130, 0.141, 0.139), stochastic=False),
        Row("PCAH", "PCAH", (0.129, 0.126, 0.121), stochastic=False),
        Row("LSH", "LSH", (0.126, 0.138, 0.157)),
        Row("PCA-ITQ", "ITQ", (0.157, 0.162, 0.166)),
        Row("DH", "DH", (0.162, 0.166, 0.170)),
        Row("DeepBit", "DeepBit", (0.194, 0.249, 0.277)),
        Row("DeepBit, release", "DeepBit", settings={"variant": "release"}),
        Row("HS", "SemanticHashing"),
        Row("Semi-supervised PCAH", "SSH", supervised=True, labelled_per_class=200),
        Row("AGH", "AGH"),
        Row("IMH", "IMH"),
        Row("SGH", "SGH"),
        Row("GreedyHash", "GreedyHash"),
        Row("Bi-half", "BiHalf"),
        Row("CIBHash", "CIBHash"),
        Row("SDC", "SDC"),
        Row("CroVCA", "CroVCA"),
        Row("DDH, graded labels", "DDH"),
        Row("DDH", "DDH", (0.447, 0.486, 0.535), settings=BINARY),
    ),
    help="""Unsupervised hashing on CIFAR-10: mAP@1000, 10,000 queries, 50,000 database images.

    Rows without a printed value: methods that the paper names without a figure (HS, and
    semi-supervised PCAH with the labels of 200 images per class), and methods that came later.

    All methods use the same deep features; in the paper, all rows but DeepBit and DDH use
    hand-crafted ones.

    \b
    ddh bench table2 --data DIR                     the full table
    ddh bench table2 --data DIR --subset 5000       a quick run with the same ranking of methods
    ddh bench table2 --protocol coco-17 --data COCO17
    """,
    note="Here all rows use the same deep features; in the paper KMH to DH had hand-crafted ones.",
)

TABLE3 = PaperTable(
    name="table3",
    number=3,
    title="Table 3: hashing with deep features",
    data="CIFAR-10",
    k=1000,
    bits=(12, 24, 32, 48),
    rows=(
        Row("ITQ + CNN", "ITQ", (0.237, 0.246, 0.255, 0.261)),
        Row("SH + CNN", "SH", (0.183, 0.164, 0.161, 0.161), stochastic=False),
        Row(
            "SPLH + CNN",
            "SPLH",
            (0.299, 0.330, 0.335, 0.330),
            True,
            labelled_per_class=500,
            settings=ALL_LABELS,
        ),
        Row("LFH + CNN", "LFH", (0.208, 0.242, 0.266, 0.339), True, labelled_per_class=500),
        Row("CSQ + CNN", "CSQ", (), True, labelled_per_class=500, settings=LINEAR),
        Row("OrthoHash + CNN", "OrthoHash", (), True, labelled_per_class=500, settings=LINEAR),
        Row("DDH, graded labels", "DDH"),
        Row("DDH", "DDH", (0.414, 0.467, 0.486, 0.512), settings=BINARY),
    ),
    help="""Shallow methods and DDH on the same deep features of CIFAR-10: mAP@1000.

    SPLH, LFH and two later methods, CSQ and OrthoHash, learn from class labels (of 500 training
    images per class, as is usual for them); the other methods see no labels.

    \b
    ddh bench table3 --data DIR
    """,
    note="Rows with (labels) saw those of {labelled} training images per class; the paper does not "
    "say how many its rows saw.",
)

TABLE4 = PaperTable(
    name="table4",
    number=4,
    title="Table 4: hashing of images with several labels",
    data="NUS-WIDE",
    k=5000,
    bits=(12, 24, 32, 48),
    rows=(
        Row("CNNH", "CNNH", (0.611, 0.618, 0.625, 0.608), supervised=True),
        Row("FastH", "FastH", (0.621, 0.650, 0.665, 0.685), True, settings=ALL_LABELS),
        Row("SDH", "SDH", (0.568, 0.600, 0.608, 0.637), supervised=True),
        Row("SDH, hinge loss", "SDH", supervised=True, settings={"loss": "hinge"}),
        Row("KSH", "KSH", (0.556, 0.572, 0.581, 0.588), True, settings=ALL_LABELS),
        Row("LFH", "LFH", (0.571, 0.568, 0.568, 0.585), supervised=True),
        Row("ITQ", "ITQ", (0.452, 0.468, 0.472, 0.477)),
        Row("SH", "SH", (0.454, 0.406, 0.405, 0.400), stochastic=False),
        Row("DDH, graded labels", "DDH"),
        Row("DDH", "DDH", (0.675, 0.680, 0.701, 0.712), settings=BINARY),
    ),
    help="""Hashing on NUS-WIDE or any multi-label list: mAP@5000; one shared concept is relevant.

    Every supervised method learns from the same labels; where there are more than 5,000 labelled
    images, from the same 5,000.

    The paper uses 1,000 queries and 4,000 training images per concept. The default here is 100
    and 500, as in most other publications.

    \b
    ddh bench table4 --data NUS-WIDE
    ddh bench table4 --data NUS-WIDE --queries 1000 --training 4000
    ddh bench table4 --list database.txt --data PICTURES
    ddh bench table4 --protocol coco-17 --data COCO17
    """,
    note="Rows with (labels) learn from the same labels, the others from none.",
)

# DDH's neighbourhood comes from the labels here (the paper, end of 3.2).
TABLE5 = PaperTable(
    name="table5",
    number=5,
    title="Table 5: deep supervised hashing",
    data="NUS-WIDE",
    k=5000,
    bits=(16, 24, 32, 48),
    rows=(
        Row("DRSCH", "DRSCH", (0.618, 0.622, 0.623, 0.628), True, settings=LINEAR),
        Row("DSCH", "DSCH", (0.592, 0.597, 0.611, 0.609), True, settings=LINEAR),
        Row("DSRH", "DSRH", (0.609, 0.618, 0.621, 0.631), True, settings=LINEAR),
        Row("DPSH", "DPSH", supervised=True, settings=LINEAR),
        Row("HashNet", "HashNet", supervised=True, settings=LINEAR),
        Row("CSQ", "CSQ", supervised=True, settings=LINEAR),
        Row("OrthoHash", "OrthoHash", supervised=True, settings=LINEAR),
        Row("DDH", "DDH", (0.675, 0.680, 0.701, 0.712), True, settings=REGULARISED),
    ),
    help="""Deep supervised methods on NUS-WIDE or any multi-label list: mAP@5000.

    \b
    ddh bench table5 --data NUS-WIDE
    ddh bench table5 --list database.txt --data PICTURES
    ddh bench table5 --protocol coco-17 --data COCO17
    """,
    note="All rows have the same head, a linear hash layer on frozen features, and learn from the "
    "same labels.",
)

TABLES = (TABLE2, TABLE3, TABLE4, TABLE5)

# Table 6, Oxford-17: accuracy in per cent, and seconds to train the classifier.
TABLE6: dict[str, tuple[float, float]] = {
    "Colour": (60.9, 3.0),
    "Shape": (70.2, 4.0),
    "Texture": (63.7, 3.0),
    "HOG": (58.5, 4.0),
    "HSV": (61.3, 3.0),
    "SIFT-Boundary": (59.4, 5.0),
    "SIFT-Internal": (70.6, 4.0),
    "DeepBit (256 bits)": (75.1, 0.07),
    "DDH (64 bits)": (76.4, 0.12),
    "DDH (256 bits)": (80.5, 0.30),
}
