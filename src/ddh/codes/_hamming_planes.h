/* Planes of bits: many queries against a block of rows by full adders, for processors that have
   logic of three inputs (AVX-512). TARGET is the attribute of these functions. See _hamming.c.

   A block of rows is turned into planes: plane i holds bit i of every row, one row to a bit. The
   distances of a query to all rows of the block are then the sum of the planes, those of them
   inverted where the query has a 1. A full adder makes a sum and a carry of three planes. Its sum
   is the same for all queries, up to inversion, and goes into another adder; its carry is one of
   eight, which are made once for the block. So a query looks up the carries, one for two bits,
   and only those are added up for it. */

#define LOAD(address) _mm512_load_si512(address)
#define STORE(address, x) _mm512_store_si512(address, x)
#define SUM(a, b, c) _mm512_ternarylogic_epi64(a, b, c, 0x96)
#define CARRY(a, b, c) _mm512_ternarylogic_epi64(a, b, c, 0xe8)
#define INVERT(a) _mm512_ternarylogic_epi64(a, a, a, 0x0f)

/* The words `at` of all rows, 8 to a vector in the order of the rows. */
TARGET INLINE void take_words(const uint8_t *rows, size_t width, size_t at, uint8_t *to) {
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

/* Eight vectors, `step` apart: the bits of a word whose number is 4, 2 or 1 times `step` change
   places with the numbers of the vectors. Only `word` bits of each are used. */
TARGET INLINE void turn_eight(uint8_t *from, int step, int word) {
    static const uint64_t LOW[] = {0x5555555555555555u, 0x3333333333333333u, 0x0f0f0f0f0f0f0f0fu,
                                   0x00ff00ff00ff00ffu, 0x0000ffff0000ffffu, 0x00000000ffffffffu};
    __m512i v[8];
    UNROLL for (int i = 0; i < 8; i++) v[i] = LOAD(from + i * step * PLANE);
    UNROLL for (int level = 0; level < 3; level++) {
        const int apart = 4 >> level, empty = step > 1 && word < 64; /* the upper half is, then */
        const __m512i low = _mm512_set1_epi64((long long)LOW[(step == 1 ? 2 : 5) - level]);
        UNROLL for (int i = 0; i < 8; i++) {
            if (i & apart || (empty && i >= 2 * apart && i >= word / 8)) continue;
            __m512i moved = _mm512_and_si512(
                low, _mm512_xor_si512(v[i + apart], _mm512_srli_epi64(v[i], apart * step)));
            v[i] = _mm512_xor_si512(v[i], _mm512_slli_epi64(moved, apart * step));
            v[i + apart] = _mm512_xor_si512(v[i + apart], moved);
        }
    }
    UNROLL for (int i = 0; i < 8; i++) STORE(from + i * step * PLANE, v[i]);
}

/* What plane_lookups finds in the table of a word; `planes` are its 64 vectors of words. */
TARGET INLINE void fill_planes(uint8_t *planes, uint8_t *table, int word) {
    const int triples = TRIPLES(word);
    for (int i = 0; i < 8; i++) turn_eight(planes + i * PLANE, 8, word);
    for (int i = 0; i < word / 8; i++) turn_eight(planes + 8 * i * PLANE, 1, word);
    for (int t = 0; t < triples; t++, table += 8 * PLANE) {
        const uint8_t *three = planes + 3 * t * PLANE;
        __m512i a = LOAD(three), b = LOAD(three + PLANE), c = LOAD(three + 2 * PLANE);
#define INVERTED(way, logic) STORE(table + way * PLANE, _mm512_ternarylogic_epi64(a, b, c, logic));
        INVERTED(0, 0xe8) INVERTED(1, 0xd4) INVERTED(2, 0xb2) INVERTED(3, 0x71)
        INVERTED(4, 0x8e) INVERTED(5, 0x4d) INVERTED(6, 0x2b) INVERTED(7, 0x17)
#undef INVERTED
        STORE(planes + (word + t) * PLANE, SUM(a, b, c));
    }
    for (int i = 0; i < 2; i++, table += 2 * PLANE) {
        __m512i rest = LOAD(planes + (3 * triples + i) * PLANE);
        STORE(table, rest);
        STORE(table + PLANE, INVERT(rest));
    }
}

/* Add a word's distances to numbers of which sums[p] has bit p. Carries are added in pairs, the
   carries of those in pairs again, and so on. */
TARGET INLINE void add_planes(const uint8_t *table, const uint16_t *lookups, __m512i *sums,
                              int depth, int word) {
    const int triples = TRIPLES(word), top = word == 64 ? 5 : word == 32 ? 4 : 3;
    __m512i x = LOAD(table + lookups[triples]), y = LOAD(table + lookups[triples + 1]);
    __m512i carry = CARRY(sums[0], x, y), waiting[6] = {0}, odd = carry;
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
        __m512i both = _mm512_and_si512(sums[p], carry);
        sums[p] = _mm512_xor_si512(sums[p], carry);
        carry = both;
    }
}

/* Rows of a block that seem near to a query, by index: bit i of word j is that of 8 * i + j. */
TARGET RARE void keep_rows(Planes *g, size_t query, __m512i far, const uint8_t *rows, size_t n,
                           size_t first) {
    Answer *answer = &g->answers[query];
    const uint32_t before = answer->accept;
    uint64_t near[8], any = 0;
    _mm512_storeu_si512(near, INVERT(far));
    for (int j = 0; j < 8; j++) any |= near[j];
    for (; any; any &= any - 1) {
        size_t i = (size_t)trailing_zeros(any);
        for (size_t row = 8 * i; row < 8 * i + 8 && row < n; row++) {
            if (!(near[row % 8] >> i & 1)) continue;
            uint32_t d = distance_avx2(g->queries + query * g->width, rows + row * g->width,
                                       g->width);
            if (d < answer->accept) keep(answer, d, first + row);
        }
    }
    if (answer->accept != before) start_planes(g, query);
}

/* One word of a block's rows for the queries that it is not too far from yet. */
TARGET INLINE void scan_word(Planes *g, size_t at, const uint8_t *rows, size_t n, size_t first,
                             int depth, int word) {
    size_t left = 0;
    take_words(rows, g->width, at, g->planes);
    fill_planes(g->planes, g->table, word);
    for (size_t i = 0; i < g->left; i++) {
        const size_t query = g->active[i];
        const uint16_t *lookups = g->lookups + (at * g->count + query) * LOOKUPS;
        uint8_t *waiting = g->waiting + query * (size_t)depth * PLANE;
        __m512i sums[MAX_PLANES] = {0};
        UNROLL for (int p = 0; p < depth; p++)
            sums[p] = at ? LOAD(waiting + p * PLANE) : _mm512_set1_epi32(g->starts[query][p]);
        add_planes(g->table, lookups, sums, depth, word);
        int near = _mm512_cmpneq_epi64_mask(sums[depth - 1], _mm512_set1_epi64(-1)) != 0;
        if (at + 1 == g->words) {
            if (near) keep_rows(g, query, sums[depth - 1], rows, n, first);
            continue;
        }
        UNROLL for (int p = 0; p < depth; p++) STORE(waiting + p * PLANE, sums[p]);
        g->active[left] = (uint16_t)query;
        left += (size_t)near;
    }
    g->left = left;
}

TARGET static void scan_block(Planes *g, const uint8_t *rows, size_t n, size_t first) {
    for (size_t i = g->left = 0; i < g->count; i++)
        if (g->answers[i].accept) g->active[g->left++] = (uint16_t)i;
    for (size_t at = 0; at < g->words && g->left; at++) /* the constants make six loops of one */
        if (g->width == 2)
            scan_word(g, at, rows, n, first, 6, 16);
        else if (g->width == 4)
            scan_word(g, at, rows, n, first, 7, 32);
        else if (g->depth == 8)
            scan_word(g, at, rows, n, first, 8, 64);
        else if (g->depth == 9)
            scan_word(g, at, rows, n, first, 9, 64);
        else if (g->depth == 10)
            scan_word(g, at, rows, n, first, 10, 64);
        else
            scan_word(g, at, rows, n, first, g->depth, 64);
}

#undef LOAD
#undef STORE
#undef SUM
#undef CARRY
#undef INVERT
