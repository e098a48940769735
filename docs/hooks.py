"""Hooks of the documentation site: links that leave docs/ lead to the repository."""

import re
from typing import Any

REPOSITORY = "https://github.com/ddh-search/ddh/blob/main/"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Point `](../examples/x.py)` at the repository: the site holds the folder docs alone."""
    return re.sub(r"\]\(\.\./(?=[^)]*\))", f"]({REPOSITORY}", markdown)
