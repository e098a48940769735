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
    uint16x8_t sums = vdupq_n_u16(0);
    size_t i = 0;
    for (; i + 16 <= width; i += 16) sums = vpadalq_u8(sums, NAME(bits)(vld1q_u8(a + i), b + i));
    return vaddlvq_u16(sums) + NAME(distance)(a + i, b + i, width - i);
}

typedef uint8x16_t NAME(Vector);
#define LOAD(address) vld1q_u8(address)
#define STORE(address, x) vst1q_u8(address, x)
#define ADD(a, b) vaddq_u8(a, b)
#define SUBTRACT_16(a, b) vsubq_u8(a, vshlq_n_u8(b, 4))
#define ADD_HIGH(sum, x) vsraq_n_u8(sum, x, 4)
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
            if (d < least) least = d;                                                           \
        }                                                                                       \
        return least <= most;                                                                   \
    }
NEAR(2)
NEAR(4)
NEAR(8)
NEAR(16)
NEAR(32)
#undef NEAR

#endif

/* ------------------------------------------------------------------ by rows */

TARGET RARE void NAME(keep_block)(const uint8_t *near, const uint8_t *query, const uint8_t *rows,
                                  size_t width, size_t first, Answer *answer) {
    for (size_t i = 0; i < ISA_BLOCK; i++) {
        if (near[i] >= answer->accept) continue;
        uint32_t d = near[i] < 255 ? near[i] : NAME(distance)(query, rows + i * width, width);
        if (d < answer->accept) keep(answer, d, first + i);
    }
}

#define ROWS(WIDTH)                                                                             \
    TARGET static void NAME(rows_##WIDTH)(const uint8_t *query, const uint8_t *rows, size_t n,  \
                                          size_t width, size_t first, Answer *answer) {         \
        uint8_t near[ISA_BLOCK];                                                                \
        size_t i = 0;                                                                           \
        (void)width;                                                                            \
        for (; i + ISA_BLOCK <= n && answer->accept; i += ISA_BLOCK) {                          \
            unsigned most = answer->accept <= 255 ? answer->accept - 1 : 255;                   \
            if (NAME(near_##WIDTH)(query, rows + i * WIDTH, most, near))                        \
                NAME(keep_block)(near, query, rows + i * WIDTH, WIDTH, first + i, answer);      \
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
                                   size_t width, size_t first, Answer *answer) {
    for (size_t i = 0; i < n; i++) {
        uint32_t d = LONG_DISTANCE(query, rows + i * width, width);
        if (d < answer->accept) keep(answer, d, first + i);
    }
}

TARGET static void NAME(matrix)(const uint8_t *query, const uint8_t *rows, size_t n, size_t width,
                                int32_t *distances) {
    if (width == 8) {
        for (size_t i = 0; i < n; i++) distances[i] = (int32_t)NAME(distance)(query, rows + 8 * i, 8);
    } else {
        for (size_t i = 0; i < n; i++)
            distances[i] = (int32_t)LONG_DISTANCE(query, rows + i * width, width);
    }
}
#undef LONG_DISTANCE

/* ------------------------------------------------------------------ by buckets */

TARGET static void NAME(visit)(const Probe *p, size_t from, size_t to, Answer *answer) {
    const Buckets *table = &p->tables[p->table];
    if (p->table_count == 1) { /* the bucket says how far its rows are */
        for (size_t i = from; i < to; i++)
            if (p->step < answer->accept) keep(answer, p->step, table->ids[i]);
        return;
    }
    for (size_t i = from; i < to; i++) {
        const uint8_t *row = table->rows ? table->rows + i * p->width
                                         : p->database + (size_t)table->ids[i] * p->width;
        uint32_t d = p->width == 8 ? NAME(distance)(p->query, row, 8)
                                   : NAME(distance)(p->query, row, p->width);
        if (d < answer->accept && first_found(p, row)) keep(answer, d, table->ids[i]);
    }
}

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

#define START(LINE, group, sums, highs)                                                         \
    UNROLL for (int v = 0; v < LINE / ISA_VECTOR; v++) {                                        \
        sums[v] = LOAD((group)->first + v * ISA_VECTOR);                                        \
        highs[v] = LOAD((group)->first + LINE + v * ISA_VECTOR);                                \
    }

/* The row seems near to a query: measure, and keep it where it is. */
TARGET RARE void NAME(inspect)(Group *g, const uint8_t *sums, const uint8_t *row, size_t index) {
    size_t queries = 2 * g->line;
    for (size_t at = 0; at < queries; at += 8) {
        uint64_t near = ~word_at(sums + at) & 0x8080808080808080u;
        for (; near; near &= near - 1) {
            size_t query = at + (size_t)__builtin_ctzll(near) / 8;
            if (query >= g->count) break;
            Answer *answer = &g->answers[query];
            uint32_t d = NAME(distance)(g->queries + query * g->width, row, g->width);
            if (d < answer->accept) keep(answer, d, index);
        }
    }
}

#define TABLES_FUNCTION(SIZE, LINE, ROWS)                                                       \
    TARGET RARE void NAME(look_##SIZE)(Group *g, const uint8_t *row, size_t index) {            \
        NAME(Vector) sums[LINE / ISA_VECTOR], highs[LINE / ISA_VECTOR], far;                    \
        uint8_t bytes[2 * LINE];                                                                \
        START(LINE, g, sums, highs)                                                             \
        ADD_DISTANCES(SIZE, LINE, g->table, row, sums, highs)                                   \
        FINISH(LINE, sums, highs, far)                                                          \
        if (ALL_TOP_BITS(far)) return;                                                          \
        UNROLL for (int v = 0; v < LINE / ISA_VECTOR; v++) {                                    \
            STORE(bytes + v * ISA_VECTOR, sums[v]);                                             \
            STORE(bytes + LINE + v * ISA_VECTOR, highs[v]);                                     \
        }                                                                                       \
        NAME(inspect)(g, bytes, row, index);                                                    \
    }                                                                                           \
    TARGET static void NAME(tables_##SIZE)(Group *g, const uint8_t *rows, size_t n,             \
                                           size_t first) {                                      \
        const uint8_t *table = g->table;                                                        \
        NAME(Vector) sums_from[LINE / ISA_VECTOR], highs_from[LINE / ISA_VECTOR];               \
        uint16_t maybe[TABLE_ROWS + 1];                                                         \
        size_t i = 0, found = 0;                                                                \
        START(LINE, g, sums_from, highs_from)                                                   \
        for (; i + ROWS <= n; i += ROWS) {                                                      \
            NAME(Vector) all, far[ROWS];                                                        \
            UNROLL for (int r = 0; r < ROWS; r++) {                                             \
                NAME(Vector) sums[LINE / ISA_VECTOR], highs[LINE / ISA_VECTOR];                 \
                UNROLL for (int v = 0; v < LINE / ISA_VECTOR; v++) {                            \
                    sums[v] = sums_from[v];                                                     \
                    highs[v] = highs_from[v];                                                   \
                }                                                                               \
                ADD_DISTANCES(SIZE, LINE, table, rows + (i + r) * SIZE, sums, highs)            \
                FINISH(LINE, sums, highs, far[r])                                               \
                all = r ? AND(all, far[r]) : far[r];                                            \
            }                                                                                   \
            if (ALL_TOP_BITS(all)) continue;                                                    \
            UNROLL for (int r = 0; r < ROWS; r++) {                                             \
                maybe[found] = (uint16_t)(i + r);                                               \
                found += !ALL_TOP_BITS(far[r]);                                                 \
            }                                                                                   \
        }                                                                                       \
        for (size_t j = 0; j < found; j++)                                                      \
            NAME(look_##SIZE)(g, rows + maybe[j] * SIZE, first + maybe[j]);                     \
        for (; i < n; i++) NAME(look_##SIZE)(g, rows + i * SIZE, first + i);                    \
    }
TABLES_FUNCTION(2, 64, 2)
TABLES_FUNCTION(4, 64, 2)
TABLES_FUNCTION(8, 32, 4)
#undef TABLES_FUNCTION

/* Longer codes: one slice of the tables after the other for all rows of a tile, because the
   first cache holds no more; the sums wait in memory. */
TARGET static void NAME(tables_sliced)(Group *g, const uint8_t *rows, size_t n, size_t first) {
    enum { LINE = 32, VECTORS = LINE / ISA_VECTOR };
    uint8_t (*waiting)[2 * LINE] = g->waiting, near[2 * LINE];
    for (size_t slice = 0; slice < g->slices; slice++) {
        const uint8_t *table = g->table + slice * SLICE * 256 * LINE, *row = rows + slice * SLICE;
        int last = slice + 1 == g->slices;
        for (size_t i = 0; i < n; i++, row += g->width) {
            NAME(Vector) sums[VECTORS], highs[VECTORS], far;
            const uint8_t *from = slice ? waiting[i] : g->first;
            UNROLL for (int v = 0; v < VECTORS; v++) {
                sums[v] = LOAD(from + v * ISA_VECTOR);
                highs[v] = LOAD(from + LINE + v * ISA_VECTOR);
            }
            ADD_DISTANCES(SLICE, LINE, table, row, sums, highs)
            uint8_t *to = last ? near : waiting[i];
            if (last) {
                FINISH(LINE, sums, highs, far)
                if (ALL_TOP_BITS(far)) continue;
            }
            UNROLL for (int v = 0; v < VECTORS; v++) {
                STORE(to + v * ISA_VECTOR, sums[v]);
                STORE(to + LINE + v * ISA_VECTOR, highs[v]);
            }
            if (last) NAME(inspect)(g, near, rows + i * g->width, first + i);
        }
    }
}

#undef ADD_DISTANCES
#undef FINISH
#undef START
#undef LOAD
#undef STORE
#undef ADD
#undef HIGH
#undef SUBTRACT_16
#undef ADD_HIGH
#undef AND
#undef ALL_TOP_BITS

#endif

#undef ISA
#undef ISA_VECTOR
#undef ISA_BLOCK
#undef TARGET
