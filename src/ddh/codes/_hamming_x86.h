/* What _hamming_isa.h needs of AVX2 and of AVX-512: near_W, long_distance and vectors of bytes. */

#if defined(ISA_AVX2)

TARGET INLINE __m256i NAME(bits)(__m256i query, const uint8_t *rows) {
    const __m256i ones = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    __m256i x = _mm256_xor_si256(query, _mm256_loadu_si256((const __m256i *)rows));
    __m256i low = _mm256_and_si256(x, _mm256_set1_epi8(15));
    __m256i high = _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(15));
    return _mm256_add_epi8(_mm256_shuffle_epi8(ones, low), _mm256_shuffle_epi8(ones, high));
}

TARGET INLINE __m256i NAME(words)(__m256i query, const uint8_t *rows) {
    return _mm256_sad_epu8(NAME(bits)(query, rows), _mm256_setzero_si256());
}

/* Lanes of 2, 4 and 8 bytes, each with the distance of one row. */

TARGET INLINE __m256i NAME(lanes_2)(const uint8_t *query, const uint8_t *rows) {
    __m256i q = _mm256_set1_epi16((short)bytes_at(query, 2));
    return _mm256_maddubs_epi16(NAME(bits)(q, rows), _mm256_set1_epi8(1));
}

TARGET INLINE __m256i NAME(lanes_4)(const uint8_t *query, const uint8_t *rows) {
    __m256i q = _mm256_set1_epi32((int)half_word_at(query));
    return _mm256_madd_epi16(_mm256_maddubs_epi16(NAME(bits)(q, rows), _mm256_set1_epi8(1)),
                             _mm256_set1_epi16(1));
}

TARGET INLINE __m256i NAME(lanes_8)(const uint8_t *query, const uint8_t *rows) {
    return NAME(words)(_mm256_set1_epi64x((long long)word_at(query)), rows);
}

TARGET INLINE __m256i NAME(halves)(__m256i a, __m256i b) {
    return _mm256_add_epi64(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}

TARGET INLINE __m256i NAME(lanes_16)(const uint8_t *query, const uint8_t *rows) {
    __m256i q = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)query));
    return NAME(halves)(NAME(words)(q, rows), NAME(words)(q, rows + 32));
}

TARGET INLINE __m256i NAME(lanes_32)(const uint8_t *query, const uint8_t *rows) {
    __m256i q = _mm256_loadu_si256((const __m256i *)query);
    __m256i a = NAME(halves)(NAME(words)(q, rows), NAME(words)(q, rows + 32));
    __m256i b = NAME(halves)(NAME(words)(q, rows + 64), NAME(words)(q, rows + 96));
    __m256i sum = _mm256_add_epi64(_mm256_permute2x128_si256(a, b, 0x20),
                                   _mm256_permute2x128_si256(a, b, 0x31));
    return _mm256_min_epu16(sum, _mm256_set1_epi16(255));
}

#define LANES_VECTOR __m256i
#define OR(a, b) _mm256_or_si256(a, b)
#define SHIFT_LEFT(x, n) _mm256_slli_epi64(x, n)
#define ANY_AT_MOST(x, most) \
    _mm256_movemask_epi8( \
        _mm256_cmpeq_epi8(_mm256_min_epu8(x, _mm256_set1_epi8((char)(most))), x))
#define STORE(address, x) _mm256_storeu_si256((__m256i *)(address), x)

TARGET INLINE uint32_t NAME(long_distance)(const uint8_t *a, const uint8_t *b, size_t width) {
    __m256i sums = _mm256_setzero_si256();
    uint64_t parts[4];
    size_t i = 0;
    for (; i + 32 <= width; i += 32)
        sums = _mm256_add_epi64(
            sums, NAME(words)(_mm256_loadu_si256((const __m256i *)(a + i)), b + i));
    STORE(parts, sums);
    return (uint32_t)(parts[0] + parts[1] + parts[2] + parts[3]) +
           NAME(distance)(a + i, b + i, width - i);
}

TARGET INLINE uint32_t NAME(ones_of_block)(const uint8_t *bytes) {
    __m256i sums = _mm256_setzero_si256(), key = _mm256_set1_epi8(0x5a);
    uint64_t parts[4];
    for (int i = 0; i < ONES_BLOCK; i += 512) { /* a byte of part is 128 at most */
        __m256i part = _mm256_setzero_si256();
        UNROLL for (int j = 0; j < 16; j++)
            part = _mm256_add_epi8(part, NAME(bits)(key, bytes + i + 32 * j));
        sums = _mm256_add_epi64(sums, _mm256_sad_epu8(part, _mm256_setzero_si256()));
    }
    STORE(parts, sums);
    return (uint32_t)(parts[0] + parts[1] + parts[2] + parts[3]);
}

#else /* AVX-512 with VPOPCNTDQ and BITALG */

TARGET INLINE __m512i NAME(difference)(__m512i query, const uint8_t *rows) {
    return _mm512_xor_si512(query, _mm512_loadu_si512(rows));
}

TARGET INLINE __m512i NAME(lanes_2)(const uint8_t *query, const uint8_t *rows) {
    return _mm512_popcnt_epi16(
        NAME(difference)(_mm512_set1_epi16((short)bytes_at(query, 2)), rows));
}

TARGET INLINE __m512i NAME(lanes_4)(const uint8_t *query, const uint8_t *rows) {
    return _mm512_popcnt_epi32(NAME(difference)(_mm512_set1_epi32((int)half_word_at(query)), rows));
}

TARGET INLINE __m512i NAME(words)(__m512i query, const uint8_t *rows) {
    return _mm512_popcnt_epi64(NAME(difference)(query, rows));
}

TARGET INLINE __m512i NAME(lanes_8)(const uint8_t *query, const uint8_t *rows) {
    return NAME(words)(_mm512_set1_epi64((long long)word_at(query)), rows);
}

TARGET INLINE __m512i NAME(halves)(__m512i a, __m512i b) {
    return _mm512_add_epi64(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

TARGET INLINE __m512i NAME(lanes_16)(const uint8_t *query, const uint8_t *rows) {
    __m512i q = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)query));
    return NAME(halves)(NAME(words)(q, rows), NAME(words)(q, rows + 64));
}

TARGET INLINE __m512i NAME(lanes_32)(const uint8_t *query, const uint8_t *rows) {
    __m512i q = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)query));
    __m512i a = NAME(halves)(NAME(words)(q, rows), NAME(words)(q, rows + 64));
    __m512i b = NAME(halves)(NAME(words)(q, rows + 128), NAME(words)(q, rows + 192));
    __m512i sum = _mm512_add_epi64(_mm512_shuffle_i64x2(a, b, _MM_SHUFFLE(2, 0, 2, 0)),
                                   _mm512_shuffle_i64x2(a, b, _MM_SHUFFLE(3, 1, 3, 1)));
    return _mm512_min_epu64(sum, _mm512_set1_epi64(255));
}

#define LANES_VECTOR __m512i
#define OR(a, b) _mm512_or_si512(a, b)
#define SHIFT_LEFT(x, n) _mm512_slli_epi64(x, n)
#define ANY_AT_MOST(x, most) (_mm512_cmple_epu8_mask(x, _mm512_set1_epi8((char)(most))) != 0)
#define STORE(address, x) _mm512_storeu_si512(address, x)

TARGET INLINE uint32_t NAME(long_distance)(const uint8_t *a, const uint8_t *b, size_t width) {
    __m512i sums = _mm512_setzero_si512();
    size_t i = 0;
    for (; i + 64 <= width; i += 64)
        sums = _mm512_add_epi64(sums, NAME(words)(_mm512_loadu_si512(a + i), b + i));
    return (uint32_t)_mm512_reduce_add_epi64(sums) + NAME(distance)(a + i, b + i, width - i);
}

TARGET INLINE uint32_t NAME(ones_of_block)(const uint8_t *bytes) {
    __m512i sums = _mm512_setzero_si512(), key = _mm512_set1_epi8(0x5a);
    for (int i = 0; i < ONES_BLOCK; i += 64)
        sums = _mm512_add_epi64(sums, NAME(words)(key, bytes + i));
    return (uint32_t)_mm512_reduce_add_epi64(sums);
}

#endif

/* Distances below 256 in lanes of LANE bytes leave room for the distances of further rows: byte
   j of a lane is that of the j-th vector of rows. order: the lane of each row of a vector. */
#define NEAR(WIDTH, LANE, ORDER)                                                                \
    TARGET INLINE int NAME(near_##WIDTH)(const uint8_t *query, const uint8_t *rows,             \
                                         unsigned most, uint8_t *out) {                         \
        enum { LANES = ISA_BLOCK / LANE };                                                      \
        static const uint8_t order[] = ORDER;                                                   \
        uint8_t bytes[ISA_BLOCK];                                                               \
        LANES_VECTOR x = NAME(lanes_##WIDTH)(query, rows);                                      \
        UNROLL for (int j = 1; j < LANE; j++)                                                   \
            x = OR(x, SHIFT_LEFT(NAME(lanes_##WIDTH)(query, rows + j * LANES * WIDTH), 8 * j)); \
        if (!ANY_AT_MOST(x, most)) return 0;                                                    \
        STORE(bytes, x);                                                                        \
        for (int i = 0; i < ISA_BLOCK; i++) {                                                   \
            int lane = i % LANES;                                                               \
            out[i] = bytes[(LANE == 8 ? order[lane] : lane) * LANE + i / LANES];                \
        }                                                                                       \
        return 1;                                                                               \
    }
#define ORDER(...) {__VA_ARGS__}
#if defined(ISA_AVX2)
NEAR(2, 2, ORDER(0))
NEAR(4, 4, ORDER(0))
NEAR(8, 8, ORDER(0, 1, 2, 3))
NEAR(16, 8, ORDER(0, 2, 1, 3))
NEAR(32, 8, ORDER(0, 1, 2, 3))
#else
NEAR(2, 2, ORDER(0))
NEAR(4, 4, ORDER(0))
NEAR(8, 8, ORDER(0, 1, 2, 3, 4, 5, 6, 7))
NEAR(16, 8, ORDER(0, 2, 4, 6, 1, 3, 5, 7))
NEAR(32, 8, ORDER(0, 2, 1, 3, 4, 6, 5, 7))
#endif
#undef NEAR
#undef ORDER
#undef STORE
#undef OR
#undef SHIFT_LEFT
#undef LANES_VECTOR
#undef ANY_AT_MOST

#if ISA_VECTOR
typedef __m256i NAME(Vector);
#define LOAD(address) _mm256_loadu_si256((const __m256i *)(address))
#define STORE(address, x) _mm256_storeu_si256((__m256i *)(address), x)
#define ADD(a, b) _mm256_add_epi8(a, b)
#define ADD_UP_TO_255(a, b) _mm256_adds_epu8(a, b)
#define HIGH(x) _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(15))
#define TIMES_16(x) _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi8(15)), 4)
#define SUBTRACT_16(a, b) _mm256_sub_epi8(a, TIMES_16(b))
#define ADD_16(a, b) _mm256_add_epi8(a, TIMES_16(b))
#define AT_MOST_128(x) _mm256_min_epu8(x, _mm256_set1_epi8(-128))
#define ADD_HIGH(sum, x) _mm256_add_epi8(sum, HIGH(x))
#define AND(a, b) _mm256_and_si256(a, b)
#define ALL_TOP_BITS(x) (_mm256_movemask_epi8(x) == -1)
#endif
