/* Planes of bits: many queries against a block of rows by full adders. AVX-512 has logic of three
   inputs, which makes an adder of two instructions; AVX2 takes five for it. ISA names the instruction
   set, PLANE is the bytes of its vectors, TARGET the attribute of its functions. See _hamming.c.

   A block of rows is turned into planes: plane i holds bit i of every row, one row to a bit. The
   distances of a query to all rows of the block are then the sum of the planes, those of them
   inverted where the query has a 1. A full adder makes a sum and a carry of three planes. Its sum
   is the same for all queries, up to inversion, and goes into another adder; its carry is one of
   eight, which are made once for the block. So a query looks up the carries, one for two bits,
   and only those are added up for it. */

#if PLANE == 64

#define VECTOR __m512i
#define LOAD(address) _mm512_load_si512(address)
#define STORE(address, x) _mm512_store_si512(address, x)
#define AND(a, b) _mm512_and_si512(a, b)
#define XOR(a, b) _mm512_xor_si512(a, b)
#define SUM(a, b, c) _mm512_ternarylogic_epi64(a, b, c, 0x96)
#define CARRY(a, b, c) _mm512_ternarylogic_epi64(a, b, c, 0xe8)
#define INVERT(a) _mm512_ternarylogic_epi64(a, a, a, 0x0f)
#define SHIFT_LEFT(x, n) _mm512_slli_epi64(x, n)
#define SHIFT_RIGHT(x, n) _mm512_srli_epi64(x, n)
#define ALL_WORDS(x) _mm512_set1_epi64((long long)(x))
#define ALL_HALVES(x) _mm512_set1_epi32(x)
#define ALL_SET(x) (_mm512_cmpneq_epi64_mask(x, _mm512_set1_epi64(-1)) == 0)

/* The words `at` of all rows, 8 to a vector in the order of the rows. */
TARGET INLINE void NAME(take_words)(const uint8_t *rows, size_t width, size_t at, uint8_t *to) {
    const uint8_t *end = to + 64 * PLANE;
    if (width == 2) {
        for (; to < end; to += PLANE, rows += 16)
            STORE(to, _mm512_cvtepu16_epi64(_mm_loadu_si128((const __m128i *)rows)));
    } else if (width == 4) {
        for (; to < end; to += PLANE, rows += 32)
            STORE(to, _mm512_cvtepu32_epi64(_mm256_loadu_si256((const __m256i *)rows)));
    } else if (width == 8) {
        for (; to < end; to += PLANE, rows += 64) STORE(to, _mm512_loadu_si512(rows));
    } else if (width == 16) {
        const __m512i wanted = _mm512_add_epi64(_mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14),
                                                _mm512_set1_epi64((long long)at));
        for (; to < end; to += PLANE, rows += 128)
            STORE(to, _mm512_permutex2var_epi64(_mm512_loadu_si512(rows), wanted,
                                                _mm512_loadu_si512(rows + 64)));
    } else if (width == 32) {
        const __m512i wanted = _mm512_add_epi64(_mm512_setr_epi64(0, 4, 8, 12, 0, 4, 8, 12),
                                                _mm512_set1_epi64((long long)at));
        for (; to < end; to += PLANE, rows += 256) {
            __m512i low = _mm512_permutex2var_epi64(_mm512_loadu_si512(rows), wanted,
                                                    _mm512_loadu_si512(rows + 64));
            __m512i high = _mm512_permutex2var_epi64(_mm512_loadu_si512(rows + 128), wanted,
                                                     _mm512_loadu_si512(rows + 192));
            STORE(to, _mm512_mask_blend_epi64(0xf0, low, high));
        }
    } else {
        size_t bytes = width - 8 * at < 8 ? width - 8 * at : 8;
        for (rows += 8 * at; to < end; to += 8, rows += width) {
            uint64_t word = bytes == 8 ? word_at(rows) : bytes_at(rows, bytes);
            memcpy(to, &word, 8);
        }
    }
}

#else

#define VECTOR __m256i
#define LOAD(address) _mm256_load_si256((const __m256i *)(address))
#define STORE(address, x) _mm256_store_si256((__m256i *)(address), x)
#define AND(a, b) _mm256_and_si256(a, b)
#define XOR(a, b) _mm256_xor_si256(a, b)
#define SUM(a, b, c) XOR(XOR(a, b), c)
#define CARRY(a, b, c) _mm256_or_si256(AND(a, b), AND(XOR(a, b), c))
#define INVERT(a) XOR(a, _mm256_set1_epi64x(-1))
#define SHIFT_LEFT(x, n) _mm256_slli_epi64(x, n)
#define SHIFT_RIGHT(x, n) _mm256_srli_epi64(x, n)
#define ALL_WORDS(x) _mm256_set1_epi64x((long long)(x))
#define ALL_HALVES(x) _mm256_set1_epi32(x)
#define ALL_SET(x) _mm256_testc_si256(x, _mm256_set1_epi64x(-1))

TARGET INLINE void NAME(take_words)(const uint8_t *rows, size_t width, size_t at, uint8_t *to) {
    const uint8_t *end = to + 64 * PLANE;
    if (width == 2) {
        for (; to < end; to += PLANE, rows += 8)
            STORE(to, _mm256_cvtepu16_epi64(_mm_loadl_epi64((const __m128i *)rows)));
    } else if (width == 4) {
        for (; to < end; to += PLANE, rows += 16)
            STORE(to, _mm256_cvtepu32_epi64(_mm_loadu_si128((const __m128i *)rows)));
    } else if (width == 8) {
        for (; to < end; to += 2 * PLANE, rows += 64) {
            PREFETCH(rows + FETCH_AHEAD);
            STORE(to, _mm256_loadu_si256((const __m256i *)rows));
            STORE(to + PLANE, _mm256_loadu_si256((const __m256i *)(rows + 32)));
        }
    } else if (width == 16) {
        for (; to < end; to += PLANE, rows += 64) {
            __m256i a = _mm256_loadu_si256((const __m256i *)rows);
            __m256i b = _mm256_loadu_si256((const __m256i *)(rows + 32));
            PREFETCH(rows + FETCH_AHEAD);
            a = at ? _mm256_unpackhi_epi64(a, b) : _mm256_unpacklo_epi64(a, b);
            STORE(to, _mm256_permute4x64_epi64(a, _MM_SHUFFLE(3, 1, 2, 0)));
        }
    } else {
        size_t bytes = width - 8 * at < 8 ? width - 8 * at : 8;
        for (rows += 8 * at; to < end; to += 8, rows += width) {
            uint64_t word = bytes == 8 ? word_at(rows) : bytes_at(rows, bytes);
            memcpy(to, &word, 8);
        }
    }
}

#endif

/* Eight vectors, `step` apart: the bits of a word whose number is 4, 2 or 1 times `step` change
   places with the numbers of the vectors. Only `word` bits of each are used. */
TARGET INLINE void NAME(turn_eight)(uint8_t *from, int step, int word) {
    static const uint64_t LOW[] = {0x5555555555555555u, 0x3333333333333333u, 0x0f0f0f0f0f0f0f0fu,
                                   0x00ff00ff00ff00ffu, 0x0000ffff0000ffffu, 0x00000000ffffffffu};
    VECTOR v[8];
    UNROLL for (int i = 0; i < 8; i++) v[i] = LOAD(from + i * step * PLANE);
    UNROLL for (int level = 0; level < 3; level++) {
        const int apart = 4 >> level, empty = step > 1 && word < 64; /* the upper half is, then */
        const VECTOR low = ALL_WORDS(LOW[(step == 1 ? 2 : 5) - level]);
        UNROLL for (int i = 0; i < 8; i++) {
            if (i & apart || (empty && i >= 2 * apart && i >= word / 8)) continue;
            VECTOR moved = AND(low, XOR(v[i + apart], SHIFT_RIGHT(v[i], apart * step)));
            v[i] = XOR(v[i], SHIFT_LEFT(moved, apart * step));
            v[i + apart] = XOR(v[i + apart], moved);
        }
    }
    UNROLL for (int i = 0; i < 8; i++) STORE(from + i * step * PLANE, v[i]);
}

/* What plane_lookups finds in the table of a word; `planes` are its 64 vectors of words. */
TARGET INLINE void NAME(fill_planes)(uint8_t *planes, uint8_t *table, int word) {
    const int triples = TRIPLES(word);
    for (int i = 0; i < 8; i++) NAME(turn_eight)(planes + i * PLANE, 8, word);
    for (int i = 0; i < word / 8; i++) NAME(turn_eight)(planes + 8 * i * PLANE, 1, word);
    for (int t = 0; t < triples; t++, table += 8 * PLANE) {
        const uint8_t *three = planes + 3 * t * PLANE;
        VECTOR a = LOAD(three), b = LOAD(three + PLANE), c = LOAD(three + 2 * PLANE);
        VECTOR carries[4] = {CARRY(a, b, c), CARRY(a, b, INVERT(c)), CARRY(a, INVERT(b), c),
                             CARRY(a, INVERT(b), INVERT(c))};
        UNROLL for (int way = 0; way < 4; way++) {
            STORE(table + way * PLANE, carries[way]);
            STORE(table + (7 - way) * PLANE, INVERT(carries[way]));
        }
        STORE(planes + (word + t) * PLANE, SUM(a, b, c));
    }
    for (int i = 0; i < 2; i++, table += 2 * PLANE) {
        VECTOR rest = LOAD(planes + (3 * triples + i) * PLANE);
        STORE(table, rest);
        STORE(table + PLANE, INVERT(rest));
    }
}

/* Add a word's distances to numbers of which sums[p] has bit p. Carries are added in pairs, the
   carries of those in pairs again, and so on. */
TARGET INLINE void NAME(add_planes)(const uint8_t *table, const uint16_t *lookups, VECTOR *sums,
                              int depth, int word) {
    const int triples = TRIPLES(word), top = word == 64 ? 5 : word == 32 ? 4 : 3;
    VECTOR x = LOAD(table + lookups[triples]), y = LOAD(table + lookups[triples + 1]);
    VECTOR carry = CARRY(sums[0], x, y), waiting[6] = {0}, odd = carry;
    sums[0] = SUM(sums[0], x, y);
    UNROLL for (int i = 0; i < word / 4; i++) {
        x = LOAD(table + lookups[2 * i]);
        y = 2 * i + 1 < triples ? LOAD(table + lookups[2 * i + 1]) : odd;
        UNROLL for (int p = 1; p <= top; p++) {
            carry = CARRY(sums[p], x, y);
            sums[p] = SUM(sums[p], x, y);
            x = waiting[p];
            y = waiting[p] = carry;
            if (!(i >> (p - 1) & 1)) break;
        }
    }
    UNROLL for (int p = top + 1; p < depth; p++) {
        VECTOR both = AND(sums[p], carry);
        sums[p] = XOR(sums[p], carry);
        carry = both;
    }
}

/* Rows of a block that seem near to a query, by index: bit i of word j of a vector is that of row
   WORDS * i + j. */
TARGET RARE void NAME(keep_rows)(Planes *g, size_t query, VECTOR far, const uint8_t *rows, size_t n,
                           size_t first) {
    Answer *answer = &g->answers[query];
    const uint32_t before = answer->accept;
    enum { WORDS = PLANE / 8 };
    _Alignas(PLANE) uint64_t near[WORDS];
    uint64_t any = 0;
    STORE(near, INVERT(far));
    for (int j = 0; j < WORDS; j++) any |= near[j];
    for (; any; any &= any - 1) {
        size_t i = (size_t)trailing_zeros(any);
        for (size_t row = WORDS * i; row < WORDS * (i + 1) && row < n; row++) {
            if (!(near[row % WORDS] >> i & 1)) continue;
            uint32_t d = distance_avx2(g->queries + query * g->width, rows + row * g->width,
                                       g->width);
            if (d < answer->accept) keep(answer, d, first + row);
        }
    }
    if (answer->accept != before) start_planes(g, query);
}

/* One word of a block's rows for the queries that it is not too far from yet. */
TARGET INLINE void NAME(scan_word)(Planes *g, size_t at, const uint8_t *rows, size_t n, size_t first,
                             int depth, int word) {
    size_t left = 0;
    NAME(take_words)(rows, g->width, at, g->planes);
    NAME(fill_planes)(g->planes, g->table, word);
    for (size_t i = 0; i < g->left; i++) {
        const size_t query = g->active[i];
        const uint16_t *lookups = g->lookups + (at * g->count + query) * LOOKUPS;
        uint8_t *waiting = g->waiting + query * (size_t)depth * PLANE;
        VECTOR sums[MAX_PLANES] = {0};
        UNROLL for (int p = 0; p < depth; p++)
            sums[p] = at ? LOAD(waiting + p * PLANE) : ALL_HALVES(g->starts[query][p]);
        NAME(add_planes)(g->table, lookups, sums, depth, word);
        int near = !ALL_SET(sums[depth - 1]);
        if (at + 1 == g->words) {
            if (near) NAME(keep_rows)(g, query, sums[depth - 1], rows, n, first);
            continue;
        }
        UNROLL for (int p = 0; p < depth; p++) STORE(waiting + p * PLANE, sums[p]);
        g->active[left] = (uint16_t)query;
        left += (size_t)near;
    }
    g->left = left;
}

TARGET static void NAME(scan_block)(Planes *g, const uint8_t *rows, size_t n, size_t first) {
    for (size_t i = g->left = 0; i < g->count; i++)
        if (g->answers[i].accept) g->active[g->left++] = (uint16_t)i;
    for (size_t at = 0; at < g->words && g->left; at++) /* the constants make six loops of one */
        if (g->width == 2)
            NAME(scan_word)(g, at, rows, n, first, 6, 16);
        else if (g->width == 4)
            NAME(scan_word)(g, at, rows, n, first, 7, 32);
        else if (g->depth == 8)
            NAME(scan_word)(g, at, rows, n, first, 8, 64);
        else if (g->depth == 9)
            NAME(scan_word)(g, at, rows, n, first, 9, 64);
        else if (g->depth == 10)
            NAME(scan_word)(g, at, rows, n, first, 10, 64);
        else
            NAME(scan_word)(g, at, rows, n, first, g->depth, 64);
}

#undef ISA
#undef PLANE
#undef TARGET
#undef VECTOR
#undef LOAD
#undef STORE
#undef AND
#undef XOR
#undef SUM
#undef CARRY
#undef INVERT
#undef SHIFT_LEFT
#undef SHIFT_RIGHT
#undef ALL_WORDS
#undef ALL_HALVES
#undef ALL_SET
