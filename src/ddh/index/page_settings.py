"""What the page keeps with an index: texts beside the rows (settings), in every engine.

Tags name rows by their keys, so whoever gives rows other keys renames them here too.
"""

import json
from collections.abc import Mapping
from typing import Any

from ddh._core.errors import DDHError
from ddh.index.base import Index
from ddh.index.features import SETTING_CHARACTERS as PART
from ddh.index.header import PAGE_SETTING

TAGS, SEARCHES = f"{PAGE_SETTING}tags", f"{PAGE_SETTING}searches"


def read_page_setting(index: Index, name: str, default: Any) -> Any:
    """The value of a setting, or `default` where nothing has been kept yet."""
    settings = index.settings()
    parts, text = int(settings.get(name, "0")), ""
    for part in range(parts):
        text += settings.get(f"{name}_{part}", "")
    try:
        return json.loads(text) if text else default
    except ValueError as error:
        raise DDHError(f"the {name} of this index are damaged: {error}") from error


def write_page_setting(index: Index, name: str, value: Any) -> None:
    """Keep a value that JSON can hold."""
    text = json.dumps(value)
    parts = [text[start : start + PART] for start in range(0, len(text), PART)]
    values = {f"{name}_{i}": part for i, part in enumerate(parts)}
    index.set_setting(**{name: str(len(parts))}, **values)


def rename_tagged(index: Index, renamed: Mapping[str, str]) -> None:
    """Give the tags of rows to their new keys; `renamed` maps old keys to new ones."""
    tags: dict[str, list[str]] = read_page_setting(index, TAGS, {})
    if any(key in renamed for keys in tags.values() for key in keys):
        now = {
            tag: list(dict.fromkeys(renamed.get(key, key) for key in keys))
            for tag, keys in tags.items()
        }
        write_page_setting(index, TAGS, now)
