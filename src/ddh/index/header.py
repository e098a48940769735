"""Properties fixed when an index is created, and what a caller may open it with."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Self

from ddh._core.errors import InputError
from ddh.codes import code_bytes

FORMAT = 1
FEATURES_FORMAT = 2  # with features, which version 0.1 would lose
MAX_COMPONENTS = 4096
PAGE_SETTING = "page_"  # before the settings in which the service keeps tags and searches
BIT_ORDER = "big"  # as ddh.codes packs: bit j under 0x80 >> (j % 8) of byte j // 8


class IndexNotFound(InputError):
    """There is no index at the location that was opened with `create=False`."""


@dataclass(frozen=True)
class IndexHeader:
    """Properties fixed when an index is created."""

    bits: int
    model_id: str | None
    created: str
    bit_order: str = BIT_ORDER
    format: int = FORMAT
    features: int = 0  # components stored per row

    def as_text(self) -> dict[str, str]:
        """Name and value, for engines that keep both as text."""
        return {name: str(value) for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_text(cls, kept: Mapping[str, str]) -> Self:
        """The inverse of `as_text`."""
        bits, version = int(kept["bits"]), int(kept["format"])
        features = int(kept.get("features", 0))
        return cls(
            bits, kept.get("model_id"), kept["created"], kept["bit_order"], version, features
        )


@dataclass(frozen=True)
class OpenOptions:
    """The arguments of `ddh.index.open`."""

    bits: int | None = None
    model_id: str | None = None
    bit_order: str = BIT_ORDER
    create: bool = True
    approximate: bool = False
    features: int | None = None

    def new_header(self, where: str) -> IndexHeader:
        """The header of a new index, where there is none yet."""
        if not self.create:
            raise IndexNotFound(f"there is no index at {where}")
        if self.bits is None:
            raise InputError(
                f"there is no index at {where} yet: give bits=, the length of its codes, to make it"
            )
        code_bytes(self.bits)
        if self.bit_order != BIT_ORDER:
            raise InputError(
                f"an index holds codes in bit order {BIT_ORDER!r}, not {self.bit_order!r}: "
                "pack them with ddh.codes.pack"
            )
        features = self.features or 0
        if not 0 <= features <= MAX_COMPONENTS:
            raise InputError(f"features are 1 to {MAX_COMPONENTS} components, not {features!r}")
        created = datetime.now(UTC).isoformat(timespec="seconds")
        version = FEATURES_FORMAT if features else FORMAT
        return IndexHeader(self.bits, self.model_id, created, BIT_ORDER, version, features)

    def check(self, where: str, header: IndexHeader) -> None:
        """Refuse a caller whose codes are not the ones that the index holds."""
        if header.format not in (FORMAT, FEATURES_FORMAT):
            raise InputError(
                f"the index {where} has format {header.format}, this library reads up to "
                f"{FEATURES_FORMAT}"
            )
        if self.features and self.features != header.features:
            held = f"{header.features} components per row" if header.features else "none"
            raise InputError(
                f"features are chosen when an index is made: {where} stores {held}, not "
                f"{self.features}; make another index"
            )
        if self.bit_order != header.bit_order:
            raise InputError(
                f"the index {where} holds codes in bit order {header.bit_order!r}, yours are in "
                f"{self.bit_order!r}: pack them with ddh.codes.pack"
            )
        if self.bits is not None and self.bits != header.bits:
            raise InputError(
                f"the index {where} holds codes of {header.bits} bits, yours have {self.bits}: "
                "use the model that made it, or make another index"
            )
        if self.model_id is not None and self.model_id != header.model_id:
            owner = f"of model {header.model_id}" if header.model_id else "made without a model id"
            raise InputError(
                f"the index {where} holds codes {owner}, yours are of model {self.model_id}, and "
                "codes of two models cannot be compared: use its own model, or make another index"
            )
