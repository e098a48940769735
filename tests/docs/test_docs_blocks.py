"""Every code block of README.md and docs/*.md runs (the rule is in doc_blocks.py)."""

import shutil
from pathlib import Path

import pytest
from doc_blocks import RUN, SHOWN, Block, Runner, blocks, indented_code

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUNNABLE = [page for page in PAGES if any(block.language in RUN for block in blocks(page))]


def named(page: Path) -> str:
    return page.name


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_blocks_say_what_they_are(page):
    for block in blocks(page):
        assert block.language in RUN | SHOWN, f"{block.place}: a block of {block.language or '?'}"
    assert not indented_code(page), f"{page.name}: put this code between fences"


@pytest.mark.parametrize("page", RUNNABLE, ids=named)
def test_the_blocks_run(page, household):
    if any(block.language == "sh" and "ddh fit" in block.text for block in blocks(page)):
        shutil.rmtree(household / "photos.ddh")  # the page fits it, and fit replaces no model
    runner = Runner(household)
    try:
        for block in blocks(page):
            if block.language in RUN:
                runner.run(block)
    finally:
        runner.close()


def test_a_block_that_fails_is_found(tmp_path):
    """The harness itself: errors are not swallowed, names and files last from block to block."""
    runner = Runner(tmp_path)
    runner.run(Block("page.md", 1, "python", "ports = [8080, 18080, 80801]\n"))
    assert runner.names["ports"] == [*map(int, runner.ports.values()), 80801]
    with pytest.raises(NameError, match="nothing_here"):
        runner.run(Block("page.md", 3, "python", "nothing_here\n"))
    with pytest.raises(AssertionError, match="no/such/folder"):
        runner.run(Block("page.md", 5, "sh", "ddh info no/such/folder\necho reached\n"))
    with pytest.raises(AssertionError, match=r"page\.md:7 ends with"):
        runner.run(Block("page.md", 7, "sh", "false | true\n"))


def test_what_a_block_leaves_running_ends_with_its_page(tmp_path):
    runner = Runner(tmp_path)
    runner.run(Block("page.md", 1, "sh", "while :; do echo x >> ticks; sleep 0.02; done &\n"))
    runner.run(Block("page.md", 3, "sh", "sleep 0.2; test $(wc -l < ticks) -gt 2\n"))
    runner.close()
    runner.run(Block("page.md", 5, "sh", "cp ticks then; sleep 0.2; cmp ticks then\n"))


def test_fences_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n\n```sh\ntrue\n```\n\n    code\n\n- list\n  more\n\n```\nx\n```\n")
    assert [(block.line, block.language, block.text) for block in blocks(page)] == [
        (4, "sh", "true\n"),
        (13, "", "x\n"),
    ]
    assert indented_code(page) == [7]
