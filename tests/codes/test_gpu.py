"""Search on a device of torch: the CPU with torch's operations, and a GPU where there is one."""

import numpy as np
import pytest

from ddh import codes
from ddh._core.errors import InputError
from ddh.codes import gpu, kernel_cuda

torch = pytest.importorskip("torch")
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


def rows(kind, n, width, seed=0):
    rng = np.random.default_rng(seed)
    if kind == "equal":
        return np.full((n, width), 7, np.uint8)
    if kind == "random":
        return rng.integers(0, 256, (n, width), dtype=np.uint8)
    centres = rng.integers(0, 256, (5, width), dtype=np.uint8)[np.sort(rng.integers(0, 5, n))]
    centres[:, 0] ^= rng.integers(0, 4, n).astype(np.uint8)
    return centres


def assert_same(found, expected):
    for name in ("limits", "distances", "indices"):
        if hasattr(expected, name):
            one, other = getattr(found, name), getattr(expected, name)
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["random", "clustered", "equal"])
@pytest.mark.parametrize(
    ("n", "width", "queries"), [(1, 8, 1), (77, 1, 3), (5003, 8, 9), (4000, 33, 6)]
)
@pytest.mark.parametrize("resident", [True, False])
def test_answers_are_those_of_the_cpu(device, kind, n, width, queries, resident):
    database, asked = rows(kind, n, width), rows(kind, queries, width, seed=1)
    asked[0] = database[n // 2]
    index = codes.GpuIndex(database, device, resident=resident)
    assert len(index) == n
    for k in (1, 10, 300):
        assert_same(index.search(asked, k), codes.search(asked, database, k))
    for radius in (0, 2 * width):
        expected = codes.search_radius(asked, database, radius)
        assert_same(index.search_radius(asked, radius), expected)


@pytest.mark.parametrize("device", DEVICES)
def test_more_candidates_than_room(monkeypatch, device):
    """Rows that come nearer with every stage, then ties: stages are halved until they fit."""
    for name, value in {"_LEAST_ROOM": 256, "_FIRST_ROWS": 128, "_FIRST_ROWS_OF_FEW": 128}.items():
        monkeypatch.setattr(gpu, name, value)
    ones = np.sort(np.random.default_rng(0).integers(0, 65, 9000))[::-1]
    signs = np.where(np.arange(64) < ones[:, None], 1, -1)
    database = codes.pack(signs)
    asked = np.zeros((2, 8), np.uint8)
    halved = []
    careful = codes.GpuIndex._in_small_steps
    monkeypatch.setattr(
        codes.GpuIndex, "_in_small_steps", lambda *a: halved.append(1) or careful(*a)
    )
    for resident in (True, False):
        index = codes.GpuIndex(database, device, resident=resident)
        assert_same(index.search(asked, 10), codes.search(asked, database, 10))
    assert halved


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("width", [1, 8, 12])
def test_pairs_are_those_of_the_cpu(device, width):
    database = np.concatenate([rows("random", 600, width), rows("clustered", 60, width)])
    database[50:80] = database[20:50]
    database[60:70, 0] ^= 3
    for radius in (0, 1, 5):
        found = codes.pairs_within(database, radius, device=device)
        for one, other in zip(found, codes.pairs_within(database, radius), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def test_streaming_takes_a_part_at_a_time(monkeypatch):
    monkeypatch.setattr(gpu, "_CHUNK_BYTES", 8 * 1000)
    database, asked = rows("random", 4321, 8), rows("random", 3, 8, seed=1)
    index = codes.GpuIndex(database, "cpu", resident=False)
    sizes = [count for _, _, count in index._chunks()]
    assert sizes == [960, 960, 960, 960, 481]
    assert_same(index.search(asked, 10), codes.search(asked, database, 10))


def test_functions_take_a_device():
    database, asked = rows("random", 500, 8), rows("random", 2, 8, seed=1)
    expected = codes.search(asked, database, 5)
    assert_same(codes.search(asked, database, 5, device="cpu"), expected)
    near = codes.search_radius(asked, database, 20)
    assert_same(codes.search_radius(asked, database, 20, device="cpu"), near)


def test_a_tensor_is_a_database():
    database = rows("random", 100, 8)
    index = codes.GpuIndex(torch.from_numpy(database), "cpu")
    assert_same(index.search(database[:3], 4), codes.search(database[:3], database, 4))
    with pytest.raises(InputError, match="uint8"):
        codes.GpuIndex(torch.zeros(3, 8), "cpu")


def test_no_rows_and_no_queries():
    index = codes.GpuIndex(np.empty((0, 8), np.uint8), "cpu")
    assert index.search(rows("random", 2, 8), 3).distances.shape == (2, 0)
    assert len(index.search_radius(rows("random", 2, 8), 3)) == 2
    assert len(index.pairs_within(3).first) == 0
    index = codes.GpuIndex(rows("random", 5, 8), "cpu")
    assert index.search(np.empty((0, 8), np.uint8), 3).indices.shape == (0, 3)


def test_errors_say_what_to_do():
    with pytest.raises(InputError, match="no device of torch"):
        codes.GpuIndex(rows("random", 5, 8), "gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="Leave device out to search on the CPU"):
            codes.search(rows("random", 1, 8), rows("random", 5, 8), 1, device="cuda")
    with pytest.raises(InputError, match="bytes per code"):
        codes.GpuIndex(rows("random", 5, 8), "cpu").search(rows("random", 5, 4), 1)


def test_operands_of_the_tensor_cores_give_hamming_distances():
    """What the kernel multiplies, in float32: rotated words under masks, and the queries."""
    words = 2
    asked, database = rows("random", 16, 4 * words), rows("random", 50, 4 * words, seed=1)
    operands = kernel_cuda._operands(torch.from_numpy(asked.view(np.int32)))
    b = operands.permute(0, 2, 1, 3).reshape(16, 32 * words)
    a = np.zeros((50, 32 * words), np.uint8)
    for word, column in enumerate(database.view(np.uint32).T):
        for thread in range(4):
            turned = (column >> np.uint32(2 * thread)) | (
                column << np.uint32((32 - 2 * thread) % 32)
            )
            for half, mask in enumerate((0x08080808, 0x10101010)):
                numbers = (turned & np.uint32(mask)).astype("<u4").view(np.uint8).reshape(-1, 4)
                start = 32 * word + 16 * half + 4 * thread
                a[:, start : start + 4] = numbers
    real = [x.view(torch.float8_e4m3fn).float() for x in (torch.from_numpy(a), b)]
    ones = np.bitwise_count(asked).sum(axis=1)
    distances = 256 * (real[0] @ real[1].T).numpy() + ones
    np.testing.assert_array_equal(distances.T, codes.hamming(asked, database))
