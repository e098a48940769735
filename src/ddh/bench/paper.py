"""The figures of the paper's tables, as data: Song, He, Fan & Gao, "Deep Discrete Hashing with
Self-supervised Pairwise Labels" (ECML PKDD 2017)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PaperTable:
    """One table of the paper: a row of values for each method, a column for each code length."""

    number: int
    data: str
    measure: str
    columns: tuple[int, ...]
    rows: dict[str, tuple[float, ...]]

    def value(self, row: str, bits: int) -> float | None:
        """The printed value, or None where the table has none."""
        if row not in self.rows or bits not in self.columns:
            return None
        return self.rows[row][self.columns.index(bits)]


TABLE2 = PaperTable(
    2,
    "CIFAR-10",
    "mAP@1000",
    (16, 32, 64),
    {
        "KMH": (0.136, 0.139, 0.145),
        "SphH": (0.145, 0.146, 0.154),
        "SH": (0.130, 0.141, 0.139),
        "PCAH": (0.129, 0.126, 0.121),
        "LSH": (0.126, 0.138, 0.157),
        "PCA-ITQ": (0.157, 0.162, 0.166),
        "DH": (0.162, 0.166, 0.170),
        "DeepBit": (0.194, 0.249, 0.277),
        "DDH": (0.447, 0.486, 0.535),
    },
)

TABLE3 = PaperTable(
    3,
    "CIFAR-10",
    "mAP@1000",
    (12, 24, 32, 48),
    {
        "ITQ + CNN": (0.237, 0.246, 0.255, 0.261),
        "SH + CNN": (0.183, 0.164, 0.161, 0.161),
        "SPLH + CNN": (0.299, 0.330, 0.335, 0.330),
        "LFH + CNN": (0.208, 0.242, 0.266, 0.339),
        "DDH": (0.414, 0.467, 0.486, 0.512),
    },
)

TABLE4 = PaperTable(
    4,
    "NUS-WIDE",
    "mAP@5000",
    (12, 24, 32, 48),
    {
        "CNNH": (0.611, 0.618, 0.625, 0.608),
        "FastH": (0.621, 0.650, 0.665, 0.685),
        "SDH": (0.568, 0.600, 0.608, 0.637),
        "KSH": (0.556, 0.572, 0.581, 0.588),
        "LFH": (0.571, 0.568, 0.568, 0.585),
        "ITQ": (0.452, 0.468, 0.472, 0.477),
        "SH": (0.454, 0.406, 0.405, 0.400),
        "DDH": (0.675, 0.680, 0.701, 0.712),
    },
)

TABLE5 = PaperTable(
    5,
    "NUS-WIDE",
    "mAP@5000",
    (16, 24, 32, 48),
    {
        "DRSCH": (0.618, 0.622, 0.623, 0.628),
        "DSCH": (0.592, 0.597, 0.611, 0.609),
        "DSRH": (0.609, 0.618, 0.621, 0.631),
        "DDH": (0.675, 0.680, 0.701, 0.712),
    },
)

# Table 6, Oxford-17: accuracy in per cent and the seconds that training the classifier took.
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
