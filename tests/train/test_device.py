"""Where torch computes, and in which precision."""

import pytest
import torch

from ddh.train.device import supports_bfloat16

INSTRUCTIONS = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")


@pytest.mark.parametrize("there", [(), *((name,) for name in INSTRUCTIONS)])
def test_a_cpu_takes_bfloat16_only_with_instructions_for_it(monkeypatch, there):
    """oneDNN says that it can on every AVX512, where it is several times slower than float32."""
    for name in INSTRUCTIONS:
        monkeypatch.setattr(torch.cpu, name, lambda name=name: name in there, raising=False)
    assert supports_bfloat16(torch.device("cpu")) == bool(there)
