"""Exports, each read back by the library it is for, bits and all."""

import json

import numpy as np
import pytest
from index_oracle import Oracle, pairs, random_codes
from index_servers import milvus_client, need_milvus

import ddh.index
from ddh._core.errors import InputError
from ddh.index import exports

ROWS = 300
ODD = ["tab\there", "line\nbreak", "back\\slash", "\\N", "quote'\"", "ü/😀", "\r"]


@pytest.fixture(scope="module", params=[13, 64])
def index(request, tmp_path_factory):
    bits = request.param
    codes = random_codes(np.random.default_rng(bits), ROWS, bits)
    keys = [*ODD, *(f"k{i}" for i in range(ROWS - len(ODD)))]
    paths = [None if i % 3 == 0 else f"a/{key}" for i, key in enumerate(keys)]
    metadata = [{"n": i, "text": 'a\\b\t"c"\nü'} if i % 2 else None for i in range(ROWS)]
    folder = tmp_path_factory.mktemp("exports") / "x.index"
    with ddh.index.open(folder, bits=bits, model_id="m7") as opened:
        opened.add(keys, codes, paths=paths, metadata=metadata)
        opened.delete(["k5"])
        yield opened


@pytest.fixture
def rows(index):
    return list(index.items())


def neighbours(rows, query: np.ndarray, k: int) -> list[tuple[str, int]]:
    oracle = Oracle(0)
    oracle.write([row.key for row in rows], np.stack([row.code for row in rows]))
    return oracle.search([query], k)[0]


def first_bit_set(rows) -> set[str]:
    """Keys whose bit 0 is one: tells a wrong order of bits, which no distance would."""
    return {row.key for row in rows if row.code[0] & 0x80}


def test_faiss_reads_the_index_back(index, rows, tmp_path):
    import faiss

    flat, keys = exports.to_faiss(index, tmp_path / "x.faiss")
    again = faiss.read_index_binary(str(tmp_path / "x.faiss"))
    assert json.loads((tmp_path / "x.faiss.keys.json").read_text()) == keys
    assert keys == [row.key for row in rows]
    for found in (flat, again):
        distances, labels = found.search(rows[7].code[None], 5)
        assert distances[0].tolist() == [d for _, d in neighbours(rows, rows[7].code, 5)]
        assert keys[labels[0, 0]] == rows[7].key
        np.testing.assert_array_equal(found.reconstruct(9), rows[9].code)


def test_postgresql_copies_the_text_in(index, rows, tmp_path, vector_server):
    psycopg = pytest.importorskip("psycopg")
    assert exports.to_pgvector(index, tmp_path / "x.copy") == len(rows)
    with psycopg.connect(vector_server.url) as db:
        db.execute(
            f"CREATE TEMP TABLE t (key text, code bit({index.bits}), path text, metadata jsonb)"
        )
        with db.cursor().copy("COPY t FROM STDIN") as copy:
            copy.write((tmp_path / "x.copy").read_bytes())
        stored = db.execute("SELECT key, path, metadata FROM t").fetchall()
        assert {(key, path, json.dumps(m)) for key, path, m in stored} == {
            (row.key, row.path, json.dumps(row.metadata)) for row in rows
        }
        ones = db.execute("SELECT key FROM t WHERE get_bit(code, 0) = 1").fetchall()
        assert {key for (key,) in ones} == first_bit_set(rows)
        query = "".join(map(str, np.unpackbits(rows[7].code, count=index.bits)))
        near = db.execute(f"SELECT (code <~> B'{query}')::int FROM t ORDER BY 1 LIMIT 5").fetchall()
        assert [d for (d,) in near] == [d for _, d in neighbours(rows, rows[7].code, 5)]


def test_milvus_takes_the_rows(index, rows, milvus_server):
    need_milvus()
    from pymilvus import DataType

    client = milvus_client(milvus_server.url)
    schema = client.create_schema(auto_id=False)
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=32)
    schema.add_field("key", DataType.VARCHAR, max_length=2048)
    schema.add_field("code", DataType.BINARY_VECTOR, dim=8 * index.code_bytes)
    schema.add_field("path", DataType.VARCHAR, max_length=2048)
    schema.add_field("metadata", DataType.JSON)
    params = client.prepare_index_params()
    params.add_index("code", index_type="BIN_FLAT", metric_type="HAMMING")
    client.create_collection(
        "exported", schema=schema, index_params=params, consistency_level="Strong"
    )
    try:
        for batch in exports.to_milvus(index):
            client.insert("exported", batch)
        found = client.search(
            "exported",
            data=[rows[7].code.tobytes()],
            limit=5,
            output_fields=["key"],
            search_params={"metric_type": "HAMMING"},
        )[0]
        expected = neighbours(rows, rows[7].code, 5)
        assert [int(hit.distance) for hit in found] == [distance for _, distance in expected]
        assert found[0].entity["key"] == rows[7].key
        stored = client.query(
            "exported", filter='id != ""', output_fields=["key", "code", "path", "metadata"]
        )
        assert {row["key"]: (row["code"][0], row["path"], row["metadata"]) for row in stored} == {
            row.key: (row.code.tobytes(), row.path or "", row.metadata) for row in rows
        }
    finally:
        client.drop_collection("exported")
        client.close()


def test_parquet_is_read_back(index, rows, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert exports.to_parquet(index, tmp_path / "x.parquet") == len(rows)
    table = parquet.read_table(tmp_path / "x.parquet")
    assert table.column("key").to_pylist() == [row.key for row in rows]
    assert table.column("path").to_pylist() == [row.path for row in rows]
    assert [json.loads(text) for text in table.column("metadata").to_pylist()] == [
        row.metadata for row in rows
    ]
    codes = np.frombuffer(b"".join(table.column("code").to_pylist()), np.uint8)
    np.testing.assert_array_equal(codes.reshape(len(rows), -1), [row.code for row in rows])
    facts = table.schema.metadata
    assert (facts[b"ddh.bits"], facts[b"ddh.bit_order"], facts[b"ddh.model_id"]) == (
        str(index.bits).encode(),
        b"big",
        b"m7",
    )


def test_lance_searches_the_data_set(index, rows, tmp_path):
    pytest.importorskip("pyarrow")
    lance = pytest.importorskip("lance", reason="pip install pylance")
    assert exports.to_lance(index, tmp_path / "x.lance") == len(rows)
    dataset = lance.dataset(tmp_path / "x.lance")
    query = {"column": "code", "q": rows[7].code, "k": 5, "metric": "hamming"}
    found = dataset.to_table(nearest=query)
    expected = neighbours(rows, rows[7].code, 5)
    assert found.column("_distance").to_pylist() == [distance for _, distance in expected]
    assert found.column("key").to_pylist()[0] == rows[7].key
    stored = dataset.to_table()
    assert stored.column("code").to_pylist() == [row.code.tolist() for row in rows]
    assert stored.schema.metadata[b"ddh.bits"] == str(index.bits).encode()
    with pytest.raises(InputError, match="there already"):
        exports.to_lance(index, tmp_path / "x.lance")


def test_an_empty_index_exports_nothing(tmp_path):
    pytest.importorskip("pyarrow")
    with ddh.index.open(tmp_path / "e.index", bits=8) as index:
        flat, keys = exports.to_faiss(index)
        assert (flat.ntotal, keys) == (0, [])
        assert exports.to_pgvector(index, tmp_path / "e.copy") == 0
        assert exports.to_parquet(index, tmp_path / "e.parquet") == 0
        assert list(exports.to_milvus(index)) == []
        assert pairs(index.search(np.zeros(1, np.uint8), 3)) == [[]]
