/* The loops of an asymmetric search, for one instruction set: ISA names it, TARGET is the attribute
   of its functions. See _asymmetric.h. */

#if defined(ISA_NEON)

#define VECTOR uint8x16_t
#define BYTES 16
#define LOAD(address) vld1q_u8(address)
#define STORE(address, x) vst1q_u8(address, x)
#define ZERO() vdupq_n_u8(0)
#define TABLE(address) vld1q_u8(address)
#define LOOK_UP(table, x) vqtbl1q_u8(table, x)
#define ADD(a, b) vqaddq_u8(a, b)
#define LOW_HALF(x) vandq_u8(x, vdupq_n_u8(15))
#define HIGH_HALF(x) vshrq_n_u8(x, 4)
#define ZIP_LOW(a, b) vzip1q_u8(a, b)
#define ZIP_HIGH(a, b) vzip2q_u8(a, b)
#define WIDE uint16x8_t
#define WIDE_LOW(x) vmovl_u8(vget_low_u8(x))
#define WIDE_HIGH(x) vmovl_high_u8(x)
#define ADD_WIDE(a, b) vaddq_u16(a, b)
#define NARROW(low, high, shift)                                     \
    vcombine_u8(vqmovn_u16(vshlq_u16(low, vdupq_n_s16(-(int)shift))), \
                vqmovn_u16(vshlq_u16(high, vdupq_n_s16(-(int)shift))))
#define LANES(rows, width) vld1q_u8(rows)
#define MASK_BITS 4 /* of each row */
INLINE uint64_t NAME(at_most)(uint8x16_t x, uint8_t most) {
    uint16x8_t small = vreinterpretq_u16_u8(vcleq_u8(x, vdupq_n_u8(most)));
    return vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(small, 4)), 0) & 0x1111111111111111u;
}

#elif defined(ISA_AVX512)

#define VECTOR __m512i
#define BYTES 64
#define LOAD(address) _mm512_loadu_si512(address)
#define STORE(address, x) _mm512_storeu_si512(address, x)
#define ZERO() _mm512_setzero_si512()
#define TABLE(address) _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(address)))
#define LOOK_UP(table, x) _mm512_shuffle_epi8(table, x)
#define ADD(a, b) _mm512_adds_epu8(a, b)
#define LOW_HALF(x) _mm512_and_si512(x, _mm512_set1_epi8(15))
#define HIGH_HALF(x) LOW_HALF(_mm512_srli_epi16(x, 4))
#define ZIP_LOW(a, b) _mm512_unpacklo_epi8(a, b)
#define ZIP_HIGH(a, b) _mm512_unpackhi_epi8(a, b)
#define WIDE __m512i
#define WIDE_LOW(x) ZIP_LOW(x, ZERO())
#define WIDE_HIGH(x) ZIP_HIGH(x, ZERO())
#define ADD_WIDE(a, b) _mm512_add_epi16(a, b)
#define AND(a, b) _mm512_and_si512(a, b)
#define TOP_BITS(low, high) \
    _mm512_packs_epi16(_mm512_srai_epi16(low, 15), _mm512_srai_epi16(high, 15))
#define NARROW(low, high, shift)                                         \
    _mm512_packus_epi16(_mm512_srl_epi16(low, _mm_cvtsi32_si128((int)shift)), \
                        _mm512_srl_epi16(high, _mm_cvtsi32_si128((int)shift)))
#define PIECE(address) _mm_loadu_si128((const __m128i *)(address))
#define LANES(rows, width)                                                                     \
    _mm512_inserti32x4(                                                                        \
        _mm512_inserti32x4(_mm512_inserti32x4(_mm512_castsi128_si512(PIECE(rows)),             \
                                              PIECE((rows) + 16 * (width)), 1),                \
                           PIECE((rows) + 32 * (width)), 2),                                   \
        PIECE((rows) + 48 * (width)), 3)
#define MASK_BITS 1
TARGET INLINE uint64_t NAME(at_most)(__m512i x, uint8_t most) {
    return _mm512_cmple_epu8_mask(x, _mm512_set1_epi8((char)most));
}

#else /* AVX2 */

#define VECTOR __m256i
#define BYTES 32
#define LOAD(address) _mm256_loadu_si256((const __m256i *)(address))
#define STORE(address, x) _mm256_storeu_si256((__m256i *)(address), x)
#define ZERO() _mm256_setzero_si256()
#define TABLE(address) _mm256_broadcastsi128_si256(PIECE(address))
#define LOOK_UP(table, x) _mm256_shuffle_epi8(table, x)
#define ADD(a, b) _mm256_adds_epu8(a, b)
#define LOW_HALF(x) _mm256_and_si256(x, _mm256_set1_epi8(15))
#define HIGH_HALF(x) LOW_HALF(_mm256_srli_epi16(x, 4))
#define ZIP_LOW(a, b) _mm256_unpacklo_epi8(a, b)
#define ZIP_HIGH(a, b) _mm256_unpackhi_epi8(a, b)
#define WIDE __m256i
#define WIDE_LOW(x) ZIP_LOW(x, ZERO())
#define WIDE_HIGH(x) ZIP_HIGH(x, ZERO())
#define ADD_WIDE(a, b) _mm256_add_epi16(a, b)
#define AND(a, b) _mm256_and_si256(a, b)
#define TOP_BITS(low, high) \
    _mm256_packs_epi16(_mm256_srai_epi16(low, 15), _mm256_srai_epi16(high, 15))
#define NARROW(low, high, shift)                                              \
    _mm256_packus_epi16(_mm256_srl_epi16(low, _mm_cvtsi32_si128((int)shift)), \
                        _mm256_srl_epi16(high, _mm_cvtsi32_si128((int)shift)))
#define PIECE(address) _mm_loadu_si128((const __m128i *)(address))
#define LANES(rows, width) \
    _mm256_inserti128_si256(_mm256_castsi128_si256(PIECE(rows)), PIECE((rows) + 16 * (width)), 1)
#define MASK_BITS 1
TARGET INLINE uint64_t NAME(at_most)(__m256i x, uint8_t most) {
    return (uint32_t)_mm256_movemask_epi8(
        _mm256_cmpeq_epi8(_mm256_min_epu8(x, _mm256_set1_epi8((char)most)), x));
}

#endif

/* Transpose matrices of bytes, one in each 16 bytes of COUNT vectors (8 or 16). A round of zips
   rotates the bits of (vector, place) by one; four bits are in a place. */
#define TRANSPOSE(COUNT, x)                                                   \
    UNROLL for (int round = 0; round < 4; round++) {                          \
        VECTOR y[COUNT];                                                      \
        UNROLL for (int i = 0; i < COUNT / 2; i++) {                          \
            y[2 * i] = ZIP_LOW(x[i], x[i + COUNT / 2]);                       \
            y[2 * i + 1] = ZIP_HIGH(x[i], x[i + COUNT / 2]);                  \
        }                                                                     \
        UNROLL for (int i = 0; i < COUNT; i++) x[i] = y[i];                   \
    }

#define STORE_HALVES(COUNT, x, to)                                            \
    UNROLL for (int i = 0; i < COUNT; i++) {                                  \
        STORE((to) + 2 * i * STEP * BYTES, HIGH_HALF(x[i]));                  \
        STORE((to) + (2 * i + 1) * STEP * BYTES, LOW_HALF(x[i]));             \
    }

/* Rows of one step -> for each half byte of a code, STEP vectors with that of every row. Rows of
   8 bytes are loaded as they lie, two to a lane of 16 bytes: see row_at. */
TARGET static void NAME(arrange)(const uint8_t *rows, size_t width, uint8_t *tile) {
    for (size_t v = 0; v < STEP; v++, rows += BYTES * width, tile += BYTES) {
        if (width == 8) {
            VECTOR x[8];
            UNROLL for (int i = 0; i < 8; i++) {
                x[i] = LOAD(rows + i * BYTES);
                PREFETCH(rows + AHEAD + i * BYTES);
            }
            TRANSPOSE(8, x)
            STORE_HALVES(8, x, tile)
            continue;
        }
        for (size_t at = 0; at < width; at += 16) {
            VECTOR x[16];
            UNROLL for (int i = 0; i < 16; i++) x[i] = LANES(rows + i * width + at, width);
            TRANSPOSE(16, x)
            STORE_HALVES(16, x, tile + 2 * at * STEP * BYTES)
        }
    }
}

INLINE size_t NAME(row_at)(size_t place, size_t width) {
    if (width > 8) return place;
    return (place % 16 / 2 * (BYTES / 16) + place / 16) * 2 + place % 2;
}

/* Score the rows of one vector that a mask names. */
TARGET RARE void NAME(consider)(uint64_t mask, const uint8_t *rows, size_t n, size_t first,
                                Ranking *r) {
    for (; mask; mask &= mask - 1) {
        size_t row = NAME(row_at)((size_t)trailing_zeros(mask) / MASK_BITS, r->width);
        if (row >= n) continue;
        double score = score_of(r->sums, rows + row * r->width, r->width);
        if (score >= r->floor) offer(r, score, first + row);
    }
}

/* Sums of the losses of `halves` half bytes for the rows of one step. */
#define ADD_LOSSES(HALVES)                                                    \
    for (size_t half = 0; half < HALVES; half++) {                            \
        VECTOR table = TABLE(losses + 16 * half);                             \
        UNROLL for (int v = 0; v < STEP; v++)                                 \
            sums[v] = ADD(sums[v], LOOK_UP(table, LOAD(tile + (half * STEP + v) * BYTES))); \
    }
TARGET INLINE void NAME(add_losses)(const uint8_t *losses, const uint8_t *tile, size_t halves,
                                    VECTOR *sums) {
    UNROLL for (int v = 0; v < STEP; v++) sums[v] = ZERO();
    if (halves == PART)
        UNROLL ADD_LOSSES(PART)
    else
        ADD_LOSSES(halves)
}

TARGET static void NAME(scan_losses)(const uint8_t *tile, const uint8_t *rows, size_t n,
                                     size_t first, Ranking *r) {
    const size_t halves = 2 * r->width, step = 2 * tile_width(r->width) * STEP * BYTES;
    for (size_t i = 0; i < n; i += STEP * BYTES, tile += step) {
        VECTOR sums[STEP];
        uint64_t masks[STEP], any = 0;
        if (halves <= PART) {
            NAME(add_losses)(r->losses, tile, halves, sums);
        } else {
            WIDE low[STEP], high[STEP];
            UNROLL for (int v = 0; v < STEP; v++) low[v] = high[v] = WIDE_LOW(ZERO());
            for (size_t from = 0; from < halves; from += PART) {
                size_t count = halves - from < PART ? halves - from : PART;
                NAME(add_losses)(r->losses + 16 * from, tile + from * STEP * BYTES, count, sums);
                UNROLL for (int v = 0; v < STEP; v++) {
                    low[v] = ADD_WIDE(low[v], WIDE_LOW(sums[v]));
                    high[v] = ADD_WIDE(high[v], WIDE_HIGH(sums[v]));
                }
            }
            UNROLL for (int v = 0; v < STEP; v++) sums[v] = NARROW(low[v], high[v], r->shift);
        }
        UNROLL for (int v = 0; v < STEP; v++) any |= masks[v] = NAME(at_most)(sums[v], r->limit);
        if (!any) continue;
        for (size_t v = 0, at = i; v < STEP && at < n; v++, at += BYTES)
            if (masks[v])
                NAME(consider)(masks[v], rows + at * r->width, n - at, first + at, r);
        set_limit(r);
    }
}

#if !defined(ISA_NEON)

/* The table of a group. See fill_lines. */
TARGET static void NAME(fill_table)(Together *g) {
    const size_t line = g->line;
    for (size_t at = 0; at < g->width; at++) {
        uint16_t halves[2][16][MOST_TOGETHER];
        uint8_t *to = g->table + at * 256 * line;
        for (size_t i = 0; i < line; i++)
            for (size_t half = 0; half < 2; half++) {
                const double *sums = i < g->count ? g->rankings[i].sums + 32 * at + 16 * half : NULL;
                double most = 0, scale = i < g->count ? 256 * g->scale[i] * (1 - ROUNDING) : 0;
                for (int x = 0; sums && x < 16; x++) most = sums[x] > most ? sums[x] : most;
                for (int x = 0; x < 16; x++) {
                    double loss = sums ? (most - sums[x]) * scale : 0;
                    halves[half][x][i] = (uint16_t)(int)(loss < 65535 ? loss : 65535);
                }
            }
        for (unsigned value = 0; value < 256; value++, to += line) {
            const uint16_t *a = halves[0][value >> 4], *b = halves[1][value & 15];
            for (size_t i = 0; i < line; i++) {
                unsigned sum = (unsigned)a[i] + b[i];
                to[i] = (uint8_t)(sum < 65536 ? sum >> 8 : 255);
            }
        }
    }
}

/* Score a row for the queries of one vector that a mask names. */
TARGET RARE void NAME(consider_row)(Together *g, uint64_t mask, size_t from, const uint8_t *row,
                                    size_t index) {
    for (; mask; mask &= mask - 1) {
        const size_t i = from + (size_t)trailing_zeros(mask);
        Ranking *r = &g->rankings[i];
        double score = score_of(r->sums, row, r->width), floor = r->floor;
        if (score < floor) continue;
        offer(r, score, index);
        if (r->floor != floor) start_sum(g, i);
    }
}

/* n rows against all queries of a group: "too far" is 255 in a sum of bytes, and the top bit in one
   of several parts. */
TARGET INLINE void NAME(add_lines)(Together *g, const uint8_t *rows, size_t n, size_t first,
                                   size_t width, const int vectors) {
    const size_t line = (size_t)vectors * BYTES;
    for (size_t i = 0; i < n; i++, rows += width) {
        VECTOR sums[2] = {ZERO()}, low[2] = {ZERO()}, high[2] = {ZERO()}, all = ZERO();
        const uint8_t *table = g->table;
        UNROLL for (int v = 0; v < vectors; v++) {
            if (width <= 8) {
                sums[v] = LOAD(g->start + v * BYTES);
            } else {
                low[v] = LOAD(g->start + 2 * v * BYTES);
                high[v] = LOAD(g->start + (2 * v + 1) * BYTES);
            }
        }
        for (size_t from = 0; from < width; from += 8) {
            const size_t count = width - from < 8 ? width - from : 8;
            if (width > 8)
                UNROLL for (int v = 0; v < vectors; v++) sums[v] = ZERO();
            UNROLL for (size_t at = 0; at < count; at++, table += 256 * line)
                UNROLL for (int v = 0; v < vectors; v++)
                    sums[v] = ADD(sums[v], LOAD(table + rows[from + at] * line + v * BYTES));
            if (width > 8)
                UNROLL for (int v = 0; v < vectors; v++) {
                    low[v] = ADD_WIDE(low[v], WIDE_LOW(sums[v]));
                    high[v] = ADD_WIDE(high[v], WIDE_HIGH(sums[v]));
                }
        }
        UNROLL for (int v = 0; v < vectors; v++) {
            if (width > 8) sums[v] = TOP_BITS(low[v], high[v]);
            all = v ? AND(all, sums[v]) : sums[v];
        }
        if (!NAME(at_most)(all, 254)) continue;
        UNROLL for (int v = 0; v < vectors; v++)
            NAME(consider_row)(g, NAME(at_most)(sums[v], 254), (size_t)v * BYTES, rows, first + i);
    }
}

TARGET static void NAME(scan_lines)(Together *g, const uint8_t *rows, size_t n, size_t first) {
    const int two = g->line > BYTES; /* the constants make eight loops of one */
    if (g->width == 8)
        two ? NAME(add_lines)(g, rows, n, first, 8, 2) : NAME(add_lines)(g, rows, n, first, 8, 1);
    else if (g->width == 16)
        two ? NAME(add_lines)(g, rows, n, first, 16, 2) : NAME(add_lines)(g, rows, n, first, 16, 1);
    else if (g->width == 32)
        two ? NAME(add_lines)(g, rows, n, first, 32, 2) : NAME(add_lines)(g, rows, n, first, 32, 1);
    else
        two ? NAME(add_lines)(g, rows, n, first, g->width, 2)
            : NAME(add_lines)(g, rows, n, first, g->width, 1);
}

#endif

#undef ISA
#undef TARGET
#undef VECTOR
#undef BYTES
#undef LOAD
#undef STORE
#undef ZERO
#undef TABLE
#undef LOOK_UP
#undef ADD
#undef LOW_HALF
#undef HIGH_HALF
#undef ZIP_LOW
#undef ZIP_HIGH
#undef WIDE
#undef WIDE_LOW
#undef WIDE_HIGH
#undef ADD_WIDE
#undef AND
#undef TOP_BITS
#undef NARROW
#undef PIECE
#undef LANES
#undef MASK_BITS
#undef TRANSPOSE
#undef STORE_HALVES
#undef ADD_LOSSES
