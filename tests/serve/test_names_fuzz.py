"""Random and damaged calls of the compiled word search; see tests/codes/test_hamming_fuzz.py."""

import os
import random

import numpy as np
import pytest

native = pytest.importorskip("ddh.serve._names")
CASES = int(os.environ.get("DDH_FUZZ", "1000"))


def draw(rng: random.Random) -> tuple[list[bytes], list[bytes]]:
    """Lines of few letters, and words that many of them hold."""
    letters = rng.choice([b"a", b"ab", b"abc\xff\0", bytes(range(11, 256))])
    sizes = rng.choice([[0, 1, 2], [7, 8, 9, 15, 16, 17], [0, 40]])
    lines = [bytes(rng.choices(letters, k=rng.choice(sizes))) for _ in range(rng.randint(0, 30))]
    words = [bytes(rng.choices(letters, k=rng.randint(1, 9))) for _ in range(rng.randint(1, 4))]
    for line in lines[:1]:
        words.append(line[rng.randint(0, len(line)) :] or b"a")
    return lines, rng.sample(words, rng.randint(1, len(words)))


def damage(rng: random.Random, call: list) -> None:
    texts, ends, words, anchors, found = call
    victim = rng.choice([part for part in (texts, ends, anchors, found) if part] or [texts])
    if victim is texts or rng.random() < 0.5:
        del victim[rng.randint(0, len(victim)) :]
    else:
        victim[rng.randrange(len(victim))] = rng.getrandbits(8)
    if rng.random() < 0.3:
        words[rng.randrange(len(words))] = rng.choice([b"", b"\n", b"a\nb"])
    if rng.random() < 0.1:
        words *= 8


def call_of(rng: random.Random, lines: list[bytes], words: list[bytes]) -> list:
    ends = np.cumsum([len(line) + 1 for line in lines], dtype=np.int64)
    anchors = bytearray(rng.randrange(len(word)) for word in words)
    texts = bytearray(b"".join(line + b"\n" for line in lines))
    return [texts, bytearray(ends.tobytes()), list(words), anchors, bytearray(4 * len(lines))]


@pytest.mark.timeout(300 + CASES // 10)
def test_random_calls():
    rng = random.Random(23)
    for _ in range(CASES // 2):
        lines, words = draw(rng)
        call = call_of(rng, lines, words)
        rows = native.find(*call)
        wanted = [i for i, line in enumerate(lines) if all(word in line for word in words)]
        assert np.frombuffer(call[-1], np.int32)[:rows].tolist() == wanted
        damage(rng, call)
        try:
            assert 0 <= native.find(*call) <= len(lines)
        except ValueError as error:
            assert "fit together" in str(error)  # noqa: PT017
