"""The OpenAPI description is true: generated requests find no 5xx and no undescribed answer."""

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture
def served(place):
    with place.open(writable=True, hosts=()) as client:
        yield client


def test_generated_requests_find_no_fault(served):
    schema = schemathesis.openapi.from_asgi("/openapi.json", served.app)
    tried = set()
    for operation in (result.ok() for result in schema.get_all_operations()):
        tried.add((operation.method.upper(), operation.path))

        @hypothesis.settings(
            max_examples=12,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(hypothesis.HealthCheck),
            phases=[hypothesis.Phase.generate],
        )
        @hypothesis.given(case=operation.as_strategy())
        def check(case):
            case.call_and_validate(checks=CHECKS)

        check()
    assert ("POST", "/search") in tried
    assert ("DELETE", "/items/{key}") in tried
    assert len(tried) >= 17


def test_the_description_names_every_route(served):
    paths = served.get("/openapi.json").json()["paths"]
    assert {
        "/health", "/metrics", "/session", "/search", "/items", "/items/{key}",
        "/thumbnails/{key}", "/pictures/{key}", "/facets", "/duplicates", "/duplicates.csv",
        "/duplicates/search", "/duplicates/stop", "/duplicates/act", "/duplicates/undo",
        "/duplicates/dismiss",
        "/map", "/map/points", "/map/codes", "/map/colours", "/map/keys", "/jobs",
        "/jobs/{job}", "/jobs/{job}/stop", "/find", "/timeline", "/details/{key}", "/paths",
        "/tags", "/searches", "/files/{action}/{key}", "/folders",
    } == set(paths)  # fmt: skip
    for operations in paths.values():
        for operation in operations.values():
            assert operation["description"]
            assert {"401", "422"} <= operation["responses"].keys()
