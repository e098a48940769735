/* The loops of a Hamming search, for one instruction set: ISA names it, TARGET is the attribute of
   its functions, ISA_VECTOR its bytes to a vector in table lookups (0: none), ISA_BLOCK the rows
   that near_W looks at. See _hamming.c. */

TARGET INLINE unsigned NAME(ones)(uint64_t x) {
#if defined(__GNUC__)
    return (unsigned)__builtin_popcountll(x);
#else
    return ones_of(x);
#endif
}

TARGET INLINE uint32_t NAME(distance)(const uint8_t *a, const uint8_t *b, size_t width) {
    uint32_t sum = 0;
    size_t i = 0;
    for (; i + 8 <= width; i += 8) sum += NAME(ones)(word_at(a + i) ^ word_at(b + i));
    if (i < width) sum += NAME(ones)(bytes_at(a + i, width - i) ^ bytes_at(b + i, width - i));
    return sum;
}

/* near_W(query, rows, most, out): is one of ISA_BLOCK rows of W bytes at a distance of `most` or
   less? If so, out holds the distances of all of them, with 255 for 255 and 256. */

#if defined(ISA_NEON)

INLINE uint8x16_t NAME(bits)(uint8x16_t query, const uint8_t *rows) {
    return vcntq_u8(veorq_u8(query, vld1q_u8(rows)));
}

INLINE uint8x16_t NAME(pairs)(uint8x16_t query, const uint8_t *rows) {
    return vpaddq_u8(NAME(bits)(query, rows), NAME(bits)(query, rows + 16));
}

INLINE uint8x16_t NAME(fours)(uint8x16_t query, const uint8_t *rows) {
    return vpaddq_u8(NAME(pairs)(query, rows), NAME(pairs)(query, rows + 32));
}

INLINE uint8x16_t NAME(eights)(uint8x16_t query, const uint8_t *rows) {
    return vpaddq_u8(NAME(fours)(query, rows), NAME(fours)(query, rows + 64));
}

INLINE uint8x16_t NAME(sixteens)(uint8x16_t query, const uint8_t *rows) {
    return vpaddq_u8(NAME(eights)(query, rows), NAME(eights)(query, rows + 128));
}

INLINE uint8x16_t NAME(long_pair)(uint8x16_t low, uint8x16_t high, const uint8_t *rows) {
    return vpaddq_u8(vaddq_u8(NAME(bits)(low, rows), NAME(bits)(high, rows + 16)),
                     vaddq_u8(NAME(bits)(low, rows + 32), NAME(bits)(high, rows + 48)));
}

INLINE uint8x16_t NAME(long_eight)(uint8x16_t low, uint8x16_t high, const uint8_t *rows) {
    return vpaddq_u8(vpaddq_u8(NAME(long_pair)(low, high, rows), NAME(long_pair)(low, high, rows + 64)),
                     vpaddq_u8(NAME(long_pair)(low, high, rows + 128),
                               NAME(long_pair)(low, high, rows + 192)));
}

INLINE uint8x16_t NAME(long_sixteen)(uint8x16_t low, uint8x16_t high, const uint8_t *rows) {
    uint8x16_t a = NAME(long_eight)(low, high, rows), b = NAME(long_eight)(low, high, rows + 256);
    return vqaddq_u8(vuzp1q_u8(a, b), vuzp2q_u8(a, b));
}

INLINE int NAME(report)(uint8x16_t a, uint8x16_t b, uint8x16_t c, uint8x16_t d, unsigned most,
                        uint8_t *out) {
    if (vminvq_u8(vminq_u8(vminq_u8(a, b), vminq_u8(c, d))) > most) return 0;
    vst1q_u8(out, a);
    vst1q_u8(out + 16, b);
    vst1q_u8(out + 32, c);
    vst1q_u8(out + 48, d);
    return 1;
}

#define NEAR(WIDTH, FUNCTION, ...)                                                              \
    INLINE int NAME(near_##WIDTH)(const uint8_t *query, const uint8_t *rows, unsigned most,     \
                                  uint8_t *out) {                                               \
        return NAME(report)(FUNCTION(__VA_ARGS__, rows), FUNCTION(__VA_ARGS__, rows + 16 * WIDTH), \
                            FUNCTION(__VA_ARGS__, rows + 32 * WIDTH),                           \
                            FUNCTION(__VA_ARGS__, rows + 48 * WIDTH), most, out);               \
    }
NEAR(2, NAME(pairs), vreinterpretq_u8_u16(vdupq_n_u16((uint16_t)bytes_at(query, 2))))
NEAR(4, NAME(fours), vreinterpretq_u8_u32(vdupq_n_u32(half_word_at(query))))
NEAR(8, NAME(eights), vreinterpretq_u8_u64(vdupq_n_u64(word_at(query))))
NEAR(16, NAME(sixteens), vld1q_u8(query))
NEAR(32, NAME(long_sixteen), vld1q_u8(query), vld1q_u8(query + 16))
#undef NEAR

INLINE uint32_t NAME(long_distance)(const uint8_t *a, const uint8_t *b, size_t width) {
    uint8x16_t sums[4]; /* a byte of a sum is 64 at most: codes have 512 bytes or less */
    size_t i = 0;
    UNROLL for (int j = 0; j < 4; j++) sums[j] = vdupq_n_u8(0);
    for (; i + 64 <= width; i += 64)
        UNROLL for (int j = 0; j < 4; j++)
            sums[j] = vaddq_u8(sums[j], NAME(bits)(vld1q_u8(a + i + 16 * j), b + i + 16 * j));
    for (; i + 16 <= width; i += 16)
        sums[0] = vaddq_u8(sums[0], NAME(bits)(vld1q_u8(a + i), b + i));
    uint16x8_t all = vpaddlq_u8(vaddq_u8(sums[0], sums[1]));
    return vaddlvq_u16(vpadalq_u8(all, vaddq_u8(sums[2], sums[3]))) +
           NAME(distance)(a + i, b + i, width - i);
}

/* XOR, popcount and nothing else. */
INLINE uint32_t NAME(ones_of_block)(const uint8_t *bytes) {
    uint8x16_t key = vdupq_n_u8(0x5a), sums[4];
    UNROLL for (int j = 0; j < 4; j++) sums[j] = vdupq_n_u8(0);
    for (int i = 0; i < ONES_BLOCK; i += 64)
        UNROLL for (int j = 0; j < 4; j++)
            sums[j] = vaddq_u8(sums[j], NAME(bits)(key, bytes + i + 16 * j));
    uint16x8_t all = vpadalq_u8(vpaddlq_u8(sums[0]), sums[1]);
    return vaddlvq_u16(vpadalq_u8(vpadalq_u8(all, sums[2]), sums[3]));
}

typedef uint8x16_t NAME(Vector);
#define LOAD(address) vld1q_u8(address)
#define STORE(address, x) vst1q_u8(address, x)
#define ADD(a, b) vaddq_u8(a, b)
#define ADD_UP_TO_255(a, b) vqaddq_u8(a, b)
#define SUBTRACT_16(a, b) vsubq_u8(a, vshlq_n_u8(b, 4))
#define ADD_16(a, b) vaddq_u8(a, vshlq_n_u8(b, 4))
#define ADD_HIGH(sum, x) vsraq_n_u8(sum, x, 4)
#define AT_MOST_128(x) vminq_u8(x, vdupq_n_u8(128))
#define AND(a, b) vandq_u8(a, b)
#define ALL_TOP_BITS(x) (vminvq_u8(x) & 0x80)

#elif defined(ISA_AVX2) || defined(ISA_AVX512)

#include "_hamming_x86.h"

#else /* plain */

#define NEAR(WIDTH)                                                                             \
    TARGET INLINE int NAME(near_##WIDTH)(const uint8_t *query, const uint8_t *rows,             \
                                         unsigned most, uint8_t *out) {                         \
        uint32_t least = ANY_DISTANCE;                                                          \
        for (int i = 0; i < ISA_BLOCK; i++) {                                                   \
            uint32_t d = NAME(distance)(query, rows + i * WIDTH, WIDTH);                        \
            out[i] = (uint8_t)(d < 255 ? d : 255);                                              \
            if (out[i] < least) least = out[i];                                                 \
        }                                                                                       \
        return least <= most;                                                                   \
    }
NEAR(2)
NEAR(4)
NEAR(8)
NEAR(16)
NEAR(32)
#undef NEAR

TARGET INLINE uint32_t NAME(ones_of_block)(const uint8_t *bytes) {
    uint32_t sum = 0;
    for (int i = 0; i < ONES_BLOCK; i += 8)
        sum += NAME(ones)(word_at(bytes + i) ^ 0x5a5a5a5a5a5a5a5au);
    return sum;
}

#endif

/* ------------------------------------------------------------------ by rows */

/* Keep what is near of rows from..ISA_BLOCK of a block. */
TARGET RARE void NAME(keep_block)(const uint8_t *near, size_t from, const uint8_t *query,
                                  const uint8_t *rows, size_t width, size_t first,
                                  Answer *answer) {
    for (size_t i = from; i < ISA_BLOCK; i++) {
        if (near[i] >= answer->accept) continue;
        uint32_t d = near[i] < 255 ? near[i] : NAME(distance)(query, rows + i * width, width);
        if (d < answer->accept) keep(answer, d, first + i);
    }
}

/* n rows, the first of which has the index `first`. What is left of the last block is looked at
   together with rows before it, where `before` says that there are enough. */
#define ROWS(WIDTH)                                                                             \
    TARGET static void NAME(rows_##WIDTH)(const uint8_t *query, const uint8_t *rows, size_t n,  \
                                          size_t width, size_t first, size_t before,            \
                                          Answer *answer) {                                     \
        uint8_t near[ISA_BLOCK];                                                                \
        size_t i = 0;                                                                           \
        (void)width;                                                                            \
        for (; i + ISA_BLOCK <= n && answer->accept; i += ISA_BLOCK) {                          \
            unsigned most = answer->accept <= 255 ? answer->accept - 1 : 255;                   \
            UNROLL for (int at = 0; at < ISA_BLOCK * WIDTH; at += 64)                           \
                PREFETCH(rows + i * WIDTH + at + FETCH_AHEAD);                                  \
            if (NAME(near_##WIDTH)(query, rows + i * WIDTH, most, near))                        \
                NAME(keep_block)(near, 0, query, rows + i * WIDTH, WIDTH, first + i, answer);   \
        }                                                                                       \
        if (n - i >= ISA_BLOCK / 4 && before + n >= ISA_BLOCK && answer->accept) {              \
            size_t seen = ISA_BLOCK - (n - i);                                                  \
            const uint8_t *block = rows + i * WIDTH - seen * WIDTH;                             \
            unsigned most = answer->accept <= 255 ? answer->accept - 1 : 255;                   \
            if (NAME(near_##WIDTH)(query, block, most, near))                                   \
                NAME(keep_block)(near, seen, query, block, WIDTH, first + i - seen, answer);    \
            return;                                                                             \
        }                                                                                       \
        for (; i < n; i++) {                                                                    \
            uint32_t d = NAME(distance)(query, rows + i * WIDTH, WIDTH);                        \
            if (d < answer->accept) keep(answer, d, first + i);                                 \
        }                                                                                       \
    }
ROWS(2)
ROWS(4)
ROWS(8)
ROWS(16)
ROWS(32)
#undef ROWS

#if defined(ISA_PLAIN)
#define LONG_DISTANCE NAME(distance)
#else
#define LONG_DISTANCE NAME(long_distance)
#endif

TARGET static void NAME(rows_wide)(const uint8_t *query, const uint8_t *rows, size_t n,
                                   size_t width, size_t first, size_t before, Answer *answer) {
    (void)before;
    for (size_t i = 0; i < n; i++) {
        uint32_t d = LONG_DISTANCE(query, rows + i * width, width);
        if (d < answer->accept) keep(answer, d, first + i);
    }
}

#define DISTANCES(WIDTH)                                                                        \
    for (; i + ISA_BLOCK <= n; i += ISA_BLOCK) {                                                \
        NAME(near_##WIDTH)(query, rows + i * WIDTH, 255, near);                                 \
        for (size_t j = 0; j < ISA_BLOCK; j++)                                                  \
            distances[i + j] =                                                                  \
                near[j] < 255 ? near[j]                                                         \
                              : (uint16_t)NAME(distance)(query, rows + (i + j) * WIDTH, WIDTH); \
    }

TARGET static void NAME(distances)(const uint8_t *query, const uint8_t *rows, size_t n,
                                   size_t width, uint16_t *distances) {
    uint8_t near[ISA_BLOCK];
    size_t i = 0;
    if (width == 2) DISTANCES(2)
    if (width == 4) DISTANCES(4)
    if (width == 8) DISTANCES(8)
    if (width == 16) DISTANCES(16)
    if (width == 32) DISTANCES(32)
    for (; i < n; i++) distances[i] = (uint16_t)LONG_DISTANCE(query, rows + i * width, width);
}
#undef DISTANCES

/* The measure of this processor's popcounts, for the bench. */
TARGET static uint64_t NAME(ones_of_blocks)(const uint8_t *bytes, size_t blocks) {
    uint64_t sum = 0;
    for (size_t i = 0; i < blocks; i++) sum += NAME(ones_of_block)(bytes + ONES_BLOCK * i);
    return sum;
}

/* Rows of a bucket that are looked up by their ids. */
TARGET static void NAME(look_up)(const Probe *p, size_t from, size_t to, Answer *answer) {
    const uint32_t *ids = p->tables[p->table].ids;
    for (size_t i = from; i < to; i++) {
        if (i + 8 < to) PREFETCH(p->database + ids[i + 8] * p->width);
        uint32_t d = LONG_DISTANCE(p->query, p->database + ids[i] * p->width, p->width);
        if (d < answer->accept) keep(answer, d, i);
    }
}
#undef LONG_DISTANCE

/* ------------------------------------------------------------------ by tables */

#if ISA_VECTOR

/* Add the distances of SIZE bytes of a row to all queries of the group: two byte positions fit
   the four bits that each query has in a line. */
#define ADD_DISTANCES(SIZE, LINE, table, row, sums, highs)                                      \
    UNROLL for (int at = 0; at < SIZE; at += 2) {                                               \
        const uint8_t *even = (table) + (at * 256 + (size_t)(row)[at]) * LINE;                  \
        const uint8_t *odd = (table) + ((at + 1) * 256 + (size_t)(row)[at + 1]) * LINE;         \
        UNROLL for (int v = 0; v < LINE / ISA_VECTOR; v++) {                                    \
            NAME(Vector) x = ADD(LOAD(even + v * ISA_VECTOR), LOAD(odd + v * ISA_VECTOR));      \
            sums[v] = ADD(sums[v], x);                                                          \
            highs[v] = ADD_HIGH(highs[v], x);                                                   \
        }                                                                                       \
    }

/* Top bits of `far` are set where the row is too far from the query. */
#define FINISH(LINE, sums, highs, far)                                                          \
    UNROLL for (int v = 0; v < LINE / ISA_VECTOR; v++) {                                        \
        sums[v] = SUBTRACT_16(sums[v], highs[v]);                                               \
        far = v ? AND(far, AND(sums[v], highs[v])) : AND(sums[v], highs[v]);                    \
    }

/* The row seems near to a query: measure, and keep it where it is. */
TARGET INLINE void NAME(inspect)(Group *g, const uint8_t *sums, size_t line, const uint8_t *row,
                                 size_t width, size_t index) {
    const uint64_t top = 0x8080808080808080u;
    for (size_t at = 0; at < 2 * line; at += 8) {
        if (at % 32 == 0)
            while (at < 2 * line && !(~(word_at(sums + at) & word_at(sums + at + 8) &
                                        word_at(sums + at + 16) & word_at(sums + at + 24)) & top))
                at += 32;
        if (at == 2 * line) return;
        for (uint64_t near = ~word_at(sums + at) & top; near; near &= near - 1) {
            size_t query = at + (size_t)trailing_zeros(near) / 8;
            if (query >= g->count) break;
            Answer *answer = &g->answers[query];
            uint32_t d = NAME(distance)(g->queries + query * width, row, width);
            if (d < answer->accept) keep(answer, d, index);
        }
    }
}

/* Sums of rows that seem near are held until there are a few, because what to do about them
   would hold up the additions. */
#define HELD 64
#define INSPECT_HELD(SIZE, LINE)                                                                \
    for (size_t j = 0; j < held; j++)                                                           \
        NAME(inspect)(g, near[j], LINE, rows + at_row[j] * SIZE, SIZE, first + at_row[j]);      \
    held = 0;

#define TABLES_FUNCTION(SIZE, LINE, ROWS)                                                       \
    TARGET static void NAME(tables_##SIZE)(Group *g, const uint8_t *rows, size_t n,             \
                                           size_t first) {                                      \
        enum { VECTORS = LINE / ISA_VECTOR };                                                   \
        NAME(Vector) first_sums[VECTORS], first_highs[VECTORS];                                 \
        uint8_t near[HELD + ROWS][2 * LINE];                                                    \
        size_t i = 0, held = 0, at_row[HELD + ROWS];                                            \
        const uint8_t *table = g->table;                                                        \
        UNROLL for (int v = 0; v < VECTORS; v++) {                                              \
            first_sums[v] = LOAD(g->first + v * ISA_VECTOR);                                    \
            first_highs[v] = LOAD(g->first + LINE + v * ISA_VECTOR);                            \
        }                                                                                       \
        for (; i + ROWS <= n; i += ROWS) {                                                      \
            NAME(Vector) sums[ROWS][VECTORS], highs[ROWS][VECTORS], far[ROWS], all;             \
            UNROLL for (int r = 0; r < ROWS; r++) {                                             \
                UNROLL for (int v = 0; v < VECTORS; v++) {                                      \
                    sums[r][v] = first_sums[v];                                                 \
                    highs[r][v] = first_highs[v];                                               \
                }                                                                               \
                ADD_DISTANCES(SIZE, LINE, table, rows + (i + r) * SIZE, sums[r], highs[r])      \
                FINISH(LINE, sums[r], highs[r], far[r])                                         \
                all = r ? AND(all, far[r]) : far[r];                                            \
            }                                                                                   \
            if (ALL_TOP_BITS(all)) continue;                                                    \
            UNROLL for (int r = 0; r < ROWS; r++) {                                             \
                UNROLL for (int v = 0; v < VECTORS; v++) {                                      \
                    STORE(near[held] + v * ISA_VECTOR, sums[r][v]);                             \
                    STORE(near[held] + LINE + v * ISA_VECTOR, highs[r][v]);                     \
                }                                                                               \
                at_row[held] = i + r;                                                           \
                held += !ALL_TOP_BITS(far[r]);                                                  \
            }                                                                                   \
            if (held >= HELD) {                                                                 \
                INSPECT_HELD(SIZE, LINE)                                                        \
            }                                                                                   \
        }                                                                                       \
        INSPECT_HELD(SIZE, LINE)                                                                \
        for (memset(near[0], 0, 2 * LINE); i < n; i++) /* too few for a turn: measure them */   \
            NAME(inspect)(g, near[0], LINE, rows + i * SIZE, SIZE, first + i);                  \
    }
TABLES_FUNCTION(2, 64, 2)
TABLES_FUNCTION(4, 64, 2)
TABLES_FUNCTION(8, 32, 4)
#undef TABLES_FUNCTION
#undef INSPECT_HELD
#undef HELD

/* Sums cut at 128 (far is far) and put together again, as ADD_DISTANCES goes on with them. */
#define GO_ON(LINE, sums, highs)                                                                \
    UNROLL for (int v = 0; v < LINE / ISA_VECTOR; v++) {                                        \
        highs[v] = AT_MOST_128(highs[v]);                                                       \
        sums[v] = ADD_16(AT_MOST_128(sums[v]), highs[v]);                                       \
    }

/* One slice for n rows of a tile: those that `left` names, or the first n where it is NULL. How
   many of them are left; without a look at their sums, all are. */
TARGET INLINE size_t NAME(add_slice)(Group *g, const uint8_t *rows, size_t n, size_t first,
                                     size_t slice, const uint16_t *left, int begin, int look,
                                     int last) {
    enum { LINE = 32, VECTORS = LINE / ISA_VECTOR };
    uint8_t (*waiting)[2 * LINE] = g->waiting, near[2 * LINE];
    const uint8_t *table = g->table + slice * SLICE * 256 * LINE, *part = rows + slice * SLICE;
    size_t kept = 0;
    for (size_t j = 0; j < n; j++) {
        NAME(Vector) sums[VECTORS], highs[VECTORS], far;
        size_t i = left ? left[j] : j;
        const uint8_t *from = begin ? g->first : waiting[j], *row = part + i * g->width;
        UNROLL for (int v = 0; v < VECTORS; v++) {
            sums[v] = LOAD(from + v * ISA_VECTOR);
            highs[v] = LOAD(from + LINE + v * ISA_VECTOR);
        }
        ADD_DISTANCES(SLICE, LINE, table, row, sums, highs)
        if (look) {
            FINISH(LINE, sums, highs, far)
            if (ALL_TOP_BITS(far)) continue;
            if (!last) {
                GO_ON(LINE, sums, highs)
                g->left[kept] = (uint16_t)i;
            }
        }
        uint8_t *to = last ? near : waiting[kept++];
        UNROLL for (int v = 0; v < VECTORS; v++) {
            STORE(to + v * ISA_VECTOR, sums[v]);
            STORE(to + LINE + v * ISA_VECTOR, highs[v]);
        }
        if (last) NAME(inspect)(g, near, LINE, rows + i * g->width, g->width, first + i);
    }
    return kept;
}

/* Longer codes: one slice of the tables after the other for all rows of a tile, because the
   first cache holds no more; the sums wait in memory. Between slices, rows that are too far from
   every query already are left out, and sums are cut, so that they seldom run over; where one
   does, the row seems near, and is measured. */
TARGET static void NAME(tables_sliced)(Group *g, const uint8_t *rows, size_t n, size_t first) {
    const Range accept = accepted(g);
    const uint16_t *left = NULL;
    for (size_t slice = 0; slice < g->slices; slice++) {
        int look = worth_a_look(slice + 1, g->slices, accept);
        /* The constants make six loops of one. */
        if (slice + 1 == g->slices)
            left ? NAME(add_slice)(g, rows, n, first, slice, left, 0, 1, 1)
                 : NAME(add_slice)(g, rows, n, first, slice, NULL, 0, 1, 1);
        else if (slice == 0)
            n = look ? NAME(add_slice)(g, rows, n, first, 0, NULL, 1, 1, 0)
                     : NAME(add_slice)(g, rows, n, first, 0, NULL, 1, 0, 0);
        else if (look)
            n = left ? NAME(add_slice)(g, rows, n, first, slice, left, 0, 1, 0)
                     : NAME(add_slice)(g, rows, n, first, slice, NULL, 0, 1, 0);
        else
            n = NAME(add_slice)(g, rows, n, first, slice, left, 0, 0, 0);
        if (look) left = g->left;
    }
}

/* As many queries as a line has bytes, or fewer: the upper four bits of the table are empty, and
   sums need not be taken apart. */
TARGET INLINE void NAME(add_halves)(Group *g, const uint8_t *rows, size_t n, size_t first,
                                    const size_t width, const size_t bytes, const size_t line) {
    NAME(Vector) start[MAX_LINE / ISA_VECTOR], sums[MAX_LINE / ISA_VECTOR], far;
    const size_t vectors = line / ISA_VECTOR;
    uint8_t near[2 * MAX_LINE];
    memset(near, 0x80, sizeof near); /* no query in the upper half */
    UNROLL for (size_t v = 0; v < vectors; v++) start[v] = LOAD(g->first + v * ISA_VECTOR);
    for (size_t i = 0; i < n; i++, rows += width) {
        UNROLL for (size_t v = 0; v < vectors; v++) sums[v] = start[v];
        UNROLL for (size_t at = 0; at < bytes; at++)
            UNROLL for (size_t v = 0; v < vectors; v++)
                sums[v] = ADD_UP_TO_255(
                    sums[v], LOAD(g->table + (at * 256 + rows[at]) * line + v * ISA_VECTOR));
        far = sums[0];
        UNROLL for (size_t v = 1; v < vectors; v++) far = AND(far, sums[v]);
        if (ALL_TOP_BITS(far)) continue;
        UNROLL for (size_t v = 0; v < vectors; v++) STORE(near + v * ISA_VECTOR, sums[v]);
        NAME(inspect)(g, near, line, rows, width, first + i);
    }
}

TARGET static void NAME(tables_half)(Group *g, const uint8_t *rows, size_t n, size_t first) {
    switch (g->width) { /* the constants make six loops of one; a slice of padding has no table */
        case 2: NAME(add_halves)(g, rows, n, first, 2, 2, 64); break;
        case 4: NAME(add_halves)(g, rows, n, first, 4, 4, 64); break;
        case 8: NAME(add_halves)(g, rows, n, first, 8, 8, 32); break;
        case 16: NAME(add_halves)(g, rows, n, first, 16, 16, 32); break;
        default:
            if (g->slices == 3)
                NAME(add_halves)(g, rows, n, first, 32, 24, 32);
            else
                NAME(add_halves)(g, rows, n, first, 32, 32, 32);
    }
}

#undef GO_ON
#undef ADD_UP_TO_255
#undef ADD_DISTANCES
#undef FINISH
#undef LOAD
#undef STORE
#undef ADD
#undef HIGH
#undef TIMES_16
#undef SUBTRACT_16
#undef ADD_16
#undef ADD_HIGH
#undef AT_MOST_128
#undef AND
#undef ALL_TOP_BITS

#endif

#undef ISA
#undef ISA_VECTOR
#undef ISA_BLOCK
#undef TARGET
