/* Exact Hamming search on a GPU: the kernels of ddh.codes.gpu, compiled at run time by NVRTC.

   Macros set by the caller: WORDS of 32 bits to a code (1, 2 or a multiple of 4), QUERIES that a
   block compares with each row, and for scan_tensor WGMMA, the text of its matrix instruction.

   scan_words   XOR and popcount. For a few queries it reads memory as fast as memory is.
   scan_tensor  Tensor cores (Hopper). The distance of a row with bits a to a query q is
                |q| + sum_j a_j s_j with s_j = 1 - 2 q_j. Rows are the A operand: a rotated word
                under a mask of one bit per byte IS four numbers of e4m3, 0 or 2^-6 (0 or 2^-5), so
                that unpacking 32 bits takes three instructions. Queries are the B operand in
                shared memory, with s_j times 2^-2 (2^-3): every product is +-2^-8, and sums of
                up to 2,048 of them are exact in half precision.
   Both append (distance, row) of rows nearer than a query's limit to the query's candidates;
   keep_nearest sorts those and lowers the limit.
   scan_pairs   Pairs within a radius among rows that are sorted by some of their bits. */

typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define ROW_BITS 40 /* of a candidate: distance << ROW_BITS | row */
#define STEP (WORDS >= 4 ? 1 : 4 / WORDS) /* rows to 16 bytes */
#define LOADS (WORDS >= 4 ? WORDS / 4 : 1) /* of 16 bytes to a row, or to STEP rows */

struct Candidates {
    u32 *counts;      /* per query: candidates found; more than there is room for: lost some */
    const i64 *starts; /* per query and one more: its room */
    u64 *keys;
};

static __device__ void add(const Candidates &c, i64 query, u32 distance, u64 row) {
    u32 at = atomicAdd(c.counts + query, 1u);
    i64 start = c.starts[query];
    if (at < c.starts[query + 1] - start) c.keys[start + at] = (u64)distance << ROW_BITS | row;
}

static __device__ uint4 read(const uint4 *from) {
    uint4 x;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(from));
    return x;
}

/* ------------------------------------------------------------------ XOR and popcount */

#ifdef SCAN_WORDS
#define THREADS 256
#define DEPTH (LOADS >= 4 ? 1 : 4 / LOADS) /* groups of rows that a thread reads at once */

/* Rows begin..end of `rows`, which must start on 16 bytes at row `begin`, for QUERIES queries
   from blockIdx.y * QUERIES on. A row's index is its place + base. */
extern "C" __global__ void __launch_bounds__(THREADS)
scan_words(const u32 *rows, i64 begin, i64 end, i64 base, const u32 *queries, const int *limits,
           Candidates found) {
    i64 first = (i64)blockIdx.y * QUERIES;
    u32 query[QUERIES][WORDS];
    int limit[QUERIES];
#pragma unroll
    for (int q = 0; q < QUERIES; q++) {
        limit[q] = limits[first + q];
#pragma unroll
        for (int w = 0; w < WORDS; w++) query[q][w] = queries[(first + q) * WORDS + w];
    }
    const uint4 *data = (const uint4 *)(rows + begin * WORDS);
    i64 groups = (end - begin + STEP - 1) / STEP;
    for (i64 at = (i64)blockIdx.x * THREADS * DEPTH + threadIdx.x; at < groups;
         at += (i64)gridDim.x * THREADS * DEPTH) {
        u32 words[DEPTH][4 * LOADS];
#pragma unroll
        for (int i = 0; i < DEPTH; i++) {
            i64 group = at + i * THREADS;
            if (group >= groups) group = at;
#pragma unroll
            for (int j = 0; j < LOADS; j++) *(uint4 *)&words[i][4 * j] = read(data + group * LOADS + j);
        }
#pragma unroll
        for (int i = 0; i < DEPTH; i++) {
#pragma unroll
            for (int s = 0; s < STEP; s++)
#pragma unroll
                for (int q = 0; q < QUERIES; q++) {
                    int distance = 0;
#pragma unroll
                    for (int w = 0; w < WORDS; w++)
                        distance += __popc(words[i][s * WORDS + w] ^ query[q][w]);
                    if (distance < limit[q]) {
                        i64 group = at + i * THREADS, row = begin + group * STEP + s;
                        if (group < groups && row < end)
                            add(found, first + q, (u32)distance, (u64)(base + row));
                    }
                }
        }
    }
}
#endif

/* ------------------------------------------------------------------ tensor cores */

#ifdef SCAN_TENSOR
#define PARTS (QUERIES / 8)

static __device__ void multiply(u32 (&d)[2 * PARTS], const u32 (&a)[4], u64 b, int add) WGMMA

static __device__ u32 lesser(u32 a, u32 b) {
    u32 x;
    asm("min.f16x2 %0, %1, %2;" : "=r"(x) : "r"(a), "r"(b));
    return x;
}

static __device__ u32 minus(u32 a, u32 b) {
    u32 x;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(x) : "r"(a), "r"(b));
    return x;
}

static __device__ int steps_of(u32 half) { /* of 2^-8 */
    float x;
    asm("{.reg .b16 h, t; mov.b32 {h, t}, %1; cvt.f32.f16 %0, h;}" : "=f"(x) : "r"(half));
    return (int)(x * 256.0f);
}

#define TILE 64 /* rows that four warps compare with QUERIES queries at once */

/* A thread's words of two rows, eight apart. */
static __device__ void fetch(u32 (&words)[2][WORDS], const u32 *rows) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const u32 *from = rows + r * 8 * WORDS;
#if WORDS == 1
        words[r][0] = __ldg(from);
#elif WORDS == 2
        uint2 x = __ldg((const uint2 *)from);
        words[r][0] = x.x, words[r][1] = x.y;
#else
#pragma unroll
        for (int w = 0; w < WORDS; w += 4) {
            uint4 x = __ldg((const uint4 *)(from + w));
            words[r][w] = x.x, words[r][w + 1] = x.y, words[r][w + 2] = x.z, words[r][w + 3] = x.w;
        }
#endif
    }
}

/* operands: the queries as numbers, in the order of shared memory (8 queries x 16 bytes are 128
   bytes in a row); bounds: (limit - ones) * 2^-8 in half precision; ones: |q|. Rows are readable up
   to a whole tile. */
extern "C" __global__ void __launch_bounds__(128, BLOCKS)
scan_tensor(const u32 *rows, i64 begin, i64 end, i64 base, const uint4 *operands, const u32 *bounds,
            const int *ones, Candidates found) {
    extern __shared__ __align__(1024) uint4 shared[];
    const int lane = threadIdx.x % 32, part = lane % 4, in_tile = threadIdx.x / 32 * 16 + lane / 4;
    i64 first = (i64)blockIdx.y * QUERIES;
    operands += (i64)blockIdx.y * (QUERIES * WORDS * 2);
    for (int i = threadIdx.x; i < QUERIES * WORDS * 2; i += 128) shared[i] = operands[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    u64 descriptor = (__cvta_generic_to_shared(shared) & 0x3ffff) >> 4;
    descriptor |= (u64)(128 >> 4) << 16 | (u64)(WORDS * 256 >> 4) << 32;
    u32 bound[PARTS];
#pragma unroll
    for (int j = 0; j < PARTS; j++) bound[j] = bounds[(first + 8 * j) / 2 + part];

    u32 words[AHEAD][2][WORDS];
    const i64 turn = (i64)gridDim.x * TILE, tiles = (end - begin + TILE - 1) / TILE;
    i64 tile = begin + (i64)blockIdx.x * TILE;
    const u32 *from = rows + (tile + in_tile) * WORDS;
    int left = (int)((tiles - blockIdx.x + gridDim.x - 1) / gridDim.x);
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        if (i < left) fetch(words[i], from + i * turn * WORDS);
    while (left > 0) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            u32 d[2 * PARTS], a[WORDS][4];
#pragma unroll
            for (int w = 0; w < WORDS; w++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    u32 x = __funnelshift_r(words[i][r][w], words[i][r][w], 2 * part);
                    a[w][r] = x & 0x08080808u;
                    a[w][r + 2] = x & 0x10101010u;
                }
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int w = 0; w < WORDS; w++) multiply(d, a[w], descriptor + w * (256 >> 4), w > 0);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            if (left > AHEAD) fetch(words[i], from + AHEAD * turn * WORDS);
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
            for (int j = 0; j < 2 * PARTS; j++) asm volatile("" : "+r"(d[j])::"memory");
            u32 near = 0;
#pragma unroll
            for (int j = 0; j < PARTS; j++) near |= minus(lesser(d[2 * j], d[2 * j + 1]), bound[j]);
            if (near & 0x80008000u) {
                i64 row = tile + in_tile;
#pragma unroll
                for (int j = 0; j < PARTS; j++)
#pragma unroll
                    for (int r = 0; r < 2; r++) {
                        u32 under = minus(d[2 * j + r], bound[j]) & 0x80008000u;
                        if (!under || row + 8 * r >= end) continue;
                        i64 query = first + 8 * j + 2 * part;
                        u64 index = (u64)(base + row + 8 * r);
                        if (under & 0x8000u)
                            add(found, query, (u32)(ones[query] + steps_of(d[2 * j + r])), index);
                        if (under >> 16)
                            add(found, query + 1,
                                (u32)(ones[query + 1] + steps_of(d[2 * j + r] >> 16)), index);
                    }
            }
            tile += turn;
            from += turn * WORDS;
            if (--left <= 0) return;
        }
    }
}
#endif

/* ------------------------------------------------------------------ selection */

#ifdef KEEP_NEAREST
/* One block per query sorts its candidates (room for 2^n of them in shared memory), keeps the k
   nearest and sets the limit to the distance of the last: rows that come later have larger indices
   and lose every tie. A query that lost candidates has `lost` set. */
extern "C" __global__ void __launch_bounds__(512)
keep_nearest(Candidates found, u32 k, int *limits, int *lost) {
    extern __shared__ u64 sorted[];
    i64 query = blockIdx.x, start = found.starts[query];
    u32 room = (u32)(found.starts[query + 1] - start), n = found.counts[query];
    if (n > room) {
        if (threadIdx.x == 0) lost[query] = 1;
        n = room;
    }
    u32 size = 2;
    while (size < n) size *= 2;
    for (u32 i = threadIdx.x; i < size; i += blockDim.x)
        sorted[i] = i < n ? found.keys[start + i] : ~(u64)0;
    for (u32 length = 2; length <= size; length *= 2)
        for (u32 gap = length / 2; gap; gap /= 2) {
            __syncthreads();
            for (u32 i = threadIdx.x; i < size / 2; i += blockDim.x) {
                u32 low = i / gap * gap * 2 + i % gap, high = low + gap;
                u64 a = sorted[low], b = sorted[high];
                if ((a > b) == ((low & length) == 0)) sorted[low] = b, sorted[high] = a;
            }
        }
    __syncthreads();
    for (u32 i = threadIdx.x; i < k && i < n; i += blockDim.x) found.keys[start + i] = sorted[i];
    if (threadIdx.x == 0) {
        found.counts[query] = n < k ? n : k;
        if (n >= k) limits[query] = (int)(sorted[k - 1] >> ROW_BITS);
    }
}
#endif

/* ------------------------------------------------------------------ pairs */

#ifdef SCAN_PAIRS
#define THREADS 128
#define EACH 4 /* rows of a thread */
#define BLOCK (THREADS * EACH)

/* Rows lie in buckets of equal keys, ends[i] is the end of row i's bucket. A pair is reported in
   one table only: that of its first `chosen` equal parts, whose bits `table` has set. masks: the
   bits of each of the parts, WORDS words each. */
extern "C" __global__ void __launch_bounds__(THREADS)
scan_pairs(const u32 *rows, i64 n, const int *ends, const int *ids, int radius, const u32 *masks,
           int parts, int chosen, u64 table, u64 *count, u64 room, u64 *pairs,
           unsigned short *distances) {
    __shared__ u32 others[THREADS * WORDS];
    i64 first = (i64)blockIdx.x * BLOCK;
    if (first >= n) return;
    u32 own[EACH][WORDS];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        i64 row = first + i * THREADS + threadIdx.x;
#pragma unroll
        for (int w = 0; w < WORDS; w++) own[i][w] = rows[(row < n ? row : n - 1) * WORDS + w];
    }
    i64 last = first + BLOCK < n ? first + BLOCK : n, end = ends[last - 1];
    for (i64 from = first; from < end; from += THREADS) {
        __syncthreads();
        for (int i = threadIdx.x; i < THREADS * WORDS; i += THREADS) {
            i64 at = from * WORDS + i;
            others[i] = at < n * WORDS ? rows[at] : 0;
        }
        __syncthreads();
#pragma unroll 4
        for (int j = 0; j < THREADS; j++) {
            u32 other[WORDS];
#pragma unroll
            for (int w = 0; w < WORDS; w++) other[w] = others[j * WORDS + w];
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                int distance = 0;
#pragma unroll
                for (int w = 0; w < WORDS; w++) distance += __popc(own[i][w] ^ other[w]);
                i64 row = first + i * THREADS + threadIdx.x, at = from + j;
                if (distance > radius || at <= row || row >= n || at >= ends[row]) continue;
                u64 equal = 0;
                int found = 0;
                for (int p = 0; p < parts && found < chosen; p++) {
                    u32 differ = 0;
                    for (int w = 0; w < WORDS; w++)
                        differ |= (own[i][w] ^ other[w]) & masks[p * WORDS + w];
                    if (!differ) equal |= (u64)1 << p, found++;
                }
                if (equal != table) continue;
                u64 slot = atomicAdd(count, (u64)1);
                if (slot >= room) continue;
                u32 a = (u32)ids[row], b = (u32)ids[at];
                pairs[slot] = a < b ? (u64)a << 32 | b : (u64)b << 32 | a;
                distances[slot] = (unsigned short)distance;
            }
        }
    }
}
#endif
