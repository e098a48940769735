"""The searches of `ddh.codes.gpu` by CUDA kernels (`_hamming.cu`).

They are compiled at run time by NVRTC, which torch brings along, and launched through the driver:
neither a CUDA toolkit nor a C compiler is needed.
"""

import ctypes
import sys
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ddh.codes.kernel_torch import Candidates, Queries, TorchKernel

_FEW_QUERIES = 8  # XOR and popcount up to here, tensor cores above
_MOST_WORDS = 16  # of a code on the tensor cores: 512 bits
_SHARED_BYTES = 64 << 10  # for the queries of a block
_SORTED_KEYS = 16384  # that fit a block's shared memory
# Queries of a block on the tensor cores: (blocks per processor, tiles read ahead, relative time),
# measured on an H200.
_SHAPES = {
    256: (4, 1, 18.4),
    128: (4, 2, 12.8),
    64: (5, 4, 9.3),
    32: (8, 4, 8.0),
    16: (8, 4, 7.0),
}
_WIDE_BLOCKS = 3  # of codes above 64 bits: their words need registers


class _Candidates(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("counts", "starts", "keys")]

    @classmethod
    def of(cls, found: Candidates) -> "_Candidates":
        return cls(found.counts.data_ptr(), found.starts.data_ptr(), found.keys.data_ptr())


@lru_cache
def _library(name: str) -> ctypes.CDLL:
    """A library of the driver ("cuda") or of the CUDA that torch was built for ("nvrtc")."""
    windows = sys.platform == "win32"
    if name == "cuda":
        return ctypes.CDLL("nvcuda.dll" if windows else "libcuda.so.1")
    major = str(torch.version.cuda).split(".")[0]
    pattern = f"nvrtc64_{major}*_0.dll" if windows else f"libnvrtc.so.{major}*"
    places = [Path(torch.__file__).parent / "lib"]
    places += [Path(path) / "nvidia" for path in sys.path]
    found = [path for place in places for path in sorted(place.rglob(pattern))]
    return ctypes.CDLL(str(found[0]) if found else f"libnvrtc.so.{major}")


def _check(status: int, what: str) -> None:
    if status:
        raise RuntimeError(f"{what} failed with CUDA error {status}")


def _compiled(source: str, options: list[str]) -> bytes:
    nvrtc = _library("nvrtc")
    program = ctypes.c_void_p()
    text = source.encode()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"_hamming.cu", 0, None, None), "")
    try:
        encoded = [option.encode() for option in options]
        array = (ctypes.c_char_p * len(encoded))(*encoded)
        status = nvrtc.nvrtcCompileProgram(program, len(encoded), array)
        size = ctypes.c_size_t()
        if status:
            _check(nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size)), "nvrtc")
            log = ctypes.create_string_buffer(size.value)
            _check(nvrtc.nvrtcGetProgramLog(program, log), "nvrtc")
            raise RuntimeError(f"_hamming.cu does not compile: {log.value.decode()}")
        _check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)), "nvrtc")
        cubin = ctypes.create_string_buffer(size.value)
        _check(nvrtc.nvrtcGetCUBIN(program, cubin), "nvrtc")
        return cubin.raw
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _matrix_instruction(queries: int) -> str:
    """The body of `multiply`: d += a b, or d = a b where `add` is 0."""
    count = queries // 4
    d = ", ".join(f"%{i}" for i in range(count))
    a = ", ".join(f"%{count + i}" for i in range(4))
    outputs = ", ".join(f'"+r"(d[{i}])' for i in range(count))
    return (
        f'{{ asm volatile("{{.reg .pred p; setp.ne.b32 p, %{count + 5}, 0; '
        f"wgmma.mma_async.sync.aligned.m64n{queries}k32.f16.e4m3.e4m3 "
        f'{{{d}}}, {{{a}}}, %{count + 4}, p, 1, 1;}}" : {outputs} : '
        '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add)); }'
    )


@cache
def _function(
    device: int, name: str, words: int, queries: int, blocks: int, ahead: int, shared: int
) -> ctypes.c_void_p:
    """A kernel for one shape of codes and queries, loaded on a device."""
    capability = torch.cuda.get_device_capability(device)
    architecture = f"{capability[0]}{capability[1]}" + "a" * (capability == (9, 0))
    source = files("ddh.codes").joinpath("_hamming.cu").read_text()
    macros: dict[str, int | str] = {
        name.upper(): 1,
        "WORDS": words,
        "QUERIES": queries,
        "BLOCKS": blocks,
        "AHEAD": ahead,
    }
    if name == "scan_tensor":
        macros["WGMMA"] = _matrix_instruction(queries)
    text = "".join(f"#define {macro} {value}\n" for macro, value in macros.items()) + source
    cubin = _compiled(text, [f"--gpu-architecture=sm_{architecture}"])
    cuda = _library("cuda")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    _check(cuda.cuModuleLoadData(ctypes.byref(module), cubin), "cuModuleLoadData")
    _check(
        cuda.cuModuleGetFunction(ctypes.byref(function), module, name.encode()),
        "cuModuleGetFunction",
    )
    if shared > 48 << 10:  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _check(cuda.cuFuncSetAttribute(function, 8, shared), "cuFuncSetAttribute")
    return function


def _launch(
    function: ctypes.c_void_p, grid: tuple[int, int], threads: int, shared: int, *arguments: Any
) -> None:
    holders = [
        argument
        if isinstance(argument, ctypes.Structure)
        else ctypes.c_void_p(argument.data_ptr())
        if isinstance(argument, Tensor)
        else argument
        for argument in arguments
    ]
    pointers = (ctypes.c_void_p * len(holders))(
        *(ctypes.cast(ctypes.byref(holder), ctypes.c_void_p) for holder in holders)
    )
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    status = _library("cuda").cuLaunchKernel(
        function, *grid, 1, threads, 1, 1, shared, stream, pointers, None
    )
    _check(status, "the launch of a kernel")


def available(device: torch.device) -> bool:
    """Whether NVIDIA's run-time compiler is there."""
    if device.type != "cuda" or not torch.version.cuda:
        return False
    try:
        _library("nvrtc"), _library("cuda")
    except OSError:
        return False
    return True


class CudaKernel(TorchKernel):
    """The kernels of `_hamming.cu`; what they have no shape for is left to torch."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        properties = torch.cuda.get_device_properties(device)
        self._number = torch.cuda.current_device() if device.index is None else device.index
        self._processors = properties.multi_processor_count
        self._hopper = (properties.major, properties.minor) == (9, 0)

    def _function(
        self,
        name: str,
        words: int,
        queries: int = 1,
        blocks: int = 1,
        ahead: int = 1,
        shared: int = 0,
    ) -> ctypes.c_void_p:
        return _function(self._number, name, words, queries, blocks, ahead, shared)

    def shape(self, queries: int, words: int) -> tuple[str, int]:
        """The kernel for so many queries of so many words, and the queries of a block."""
        if queries <= _FEW_QUERIES or not self._hopper or words > _MOST_WORDS:
            most = _FEW_QUERIES if words <= 4 else 4 if words <= 8 else 1
            return "scan_words", min(most, 1 << (queries - 1).bit_length())
        fits = [size for size in _SHAPES if size * words * 32 <= _SHARED_BYTES]
        return "scan_tensor", min(fits, key=lambda size: -(-queries // size) * _SHAPES[size][2])

    def prepare(self, queries: Tensor) -> Queries:
        """Queries (q, words) int32 in the order that their kernel wants them."""
        name, size = self.shape(len(queries), queries.shape[1])
        count = -(-len(queries) // size) * size
        padded = torch.zeros((count, queries.shape[1]), dtype=torch.int32, device=self.device)
        padded[: len(queries)] = queries
        prepared = Queries(padded, len(queries), name, size)
        if name == "scan_tensor":
            prepared.ones = self.ones(padded)
            prepared.operands = _operands(padded)
        return prepared

    def scan(
        self,
        rows: Tensor,
        begin: int,
        end: int,
        base: int,
        queries: Queries,
        limits: Tensor,
        found: Candidates,
    ) -> None:
        """Append the rows begin..end that are nearer than `limits` to the candidates."""
        words, size = rows.shape[1], queries.size
        span = [ctypes.c_int64(value) for value in (begin, end, base)]
        candidates = _Candidates.of(found)
        groups = len(queries.words) // size
        if queries.kernel == "scan_words":
            step, loads = max(1, 4 // words), max(1, words // 4)
            depth = 256 * step * max(1, 4 // loads)
            grid = min(-(-(end - begin) // depth), 8 * self._processors), groups
            function = self._function("scan_words", words, size)
            _launch(function, grid, 256, 0, rows, *span, queries.words, limits, candidates)
            return
        blocks, ahead, _ = _SHAPES[size]
        shared = size * words * 32
        ahead = ahead if words <= 4 else 1
        if words > 2:
            blocks = min(blocks, _WIDE_BLOCKS, (220 << 10) // (shared + 1024))
        assert queries.operands is not None
        assert queries.ones is not None
        bounds = ((limits - queries.ones).to(torch.float32) / 256).to(torch.float16)
        function = self._function("scan_tensor", words, size, blocks, ahead, shared)
        grid = min(-(-(end - begin) // 64), blocks * self._processors), groups
        _launch(
            function,
            grid,
            128,
            shared,
            rows,
            *span,
            queries.operands,
            bounds,
            queries.ones,
            candidates,
        )

    def keep_nearest(self, found: Candidates, k: int, limits: Tensor, lost: Tensor) -> None:
        """Sort the candidates, keep the k nearest, and lower the limits to the last of them."""
        if found.room > _SORTED_KEYS:
            return super().keep_nearest(found, k, limits, lost)
        shared = 8 * found.room
        function = self._function("keep_nearest", 1, shared=shared)
        candidates = _Candidates.of(found)
        _launch(
            function,
            (len(found.counts), 1),
            512,
            shared,
            candidates,
            ctypes.c_uint32(k),
            limits,
            lost,
        )
        return None

    def scan_pairs(
        self,
        rows: Tensor,
        ends: Tensor,
        ids: Tensor,
        radius: int,
        masks: Tensor,
        chosen: int,
        table: int,
        room: int,
    ) -> tuple[Tensor, Tensor]:
        """Pairs `first << 32 | second` of ids within a radius in one bucket, and distances."""
        words = rows.shape[1]
        function = self._function("scan_pairs", words)
        numbers = ctypes.c_int(len(masks)), ctypes.c_int(chosen), ctypes.c_uint64(table)
        while True:
            count = torch.zeros(1, dtype=torch.int64, device=self.device)
            pairs = torch.empty(room, dtype=torch.int64, device=self.device)
            distances = torch.empty(room, dtype=torch.int16, device=self.device)
            _launch(
                function, (-(-len(rows) // 512), 1), 128, 0, rows, ctypes.c_int64(len(rows)), ends,
                ids, ctypes.c_int(radius), masks, *numbers, count, ctypes.c_uint64(room), pairs,
                distances,
            )  # fmt: skip
            total = int(count)
            if total <= room:
                return pairs[:total], distances[:total]
            room = total


def _operands(queries: Tensor) -> Tensor:
    """Queries (q, words) as e4m3 numbers in the order of shared memory, see `_hamming.cu`."""
    count, words = queries.shape
    thread, byte = torch.arange(4).repeat_interleave(4), torch.arange(4).repeat(4)
    # Of the 32 numbers of a word: the first half lies under the mask 0x08 of a rotated byte.
    bit = torch.cat([8 * byte + 3 + 2 * thread, 8 * byte + 4 + 2 * thread]) % 32
    size = torch.tensor([0x28] * 16 + [0x20] * 16, device=queries.device)
    ones = (queries[:, :, None] >> bit.to(queries.device)) & 1
    numbers = (size + 0x80 * ones).to(torch.uint8).reshape(count // 8, 8, 2 * words, 16)
    return numbers.permute(0, 2, 1, 3).contiguous()
