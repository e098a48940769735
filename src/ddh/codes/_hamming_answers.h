/* The parts of a Hamming search that know no instruction set: the running answer of a query, the
   tables of a group of queries, and the buckets of a multi-index. See _hamming.c. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline, unused))
#define RARE static __attribute__((noinline, unused))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define INLINE static inline
#define RARE static
#define UNROLL
#define PREFETCH(address) ((void)(address))
#endif

#if defined(__GNUC__) && defined(__aarch64__) && defined(__ARM_NEON)
#define HAVE_NEON 1
#if defined(__clang__)
#define TUNE
#else
#define TUNE __attribute__((target("tune=neoverse-n1"))) /* wide cores of the day */
#endif
#include <arm_neon.h>
#elif defined(__GNUC__) && defined(__x86_64__)
#define HAVE_X86 1
#include <immintrin.h>
#endif

#define TILE_BYTES 32768   /* of rows: half of a first cache */
#define FETCH_AHEAD 4096   /* bytes of rows, before they are needed */
#define TABLE_ROWS 2048    /* rows between two looks at another slice of a table */
#define SLICE 8            /* bytes of a code whose tables are used in one pass */
#define MAX_LINE 64        /* bytes of a table's line: two queries to a byte */
#define MAX_TABLES 512     /* of a multi-index: one for each byte of the longest code */
#define ONES_BLOCK 1024    /* bytes that the measure of popcounts takes at once */
#define ANY_DISTANCE 8192  /* above every distance, codes have 4,096 bits or less */

/* ------------------------------------------------------------------ codes of any width */

INLINE uint64_t word_at(const uint8_t *bytes) {
    uint64_t word;
    memcpy(&word, bytes, 8);
    return word;
}

INLINE uint32_t half_word_at(const uint8_t *bytes) {
    uint32_t word;
    memcpy(&word, bytes, 4);
    return word;
}

INLINE int trailing_zeros(uint64_t x) {
#if defined(__GNUC__)
    return __builtin_ctzll(x);
#else
    int n = 0;
    for (; !(x & 1); x >>= 1) n++;
    return n;
#endif
}

INLINE uint64_t bytes_at(const uint8_t *bytes, size_t n) {
    uint64_t word = 0;
    memcpy(&word, bytes, n);
    return word;
}

/* The width a code is padded to: one that has its own loop, or itself where it is longer. */
static size_t padded_width(size_t width) {
    size_t padded = 2;
    if (width > 32) return width;
    while (padded < width) padded *= 2;
    return padded;
}

static int width_class(size_t width) {
    return width <= 2 ? 0 : width <= 4 ? 1 : width <= 8 ? 2 : width <= 16 ? 3 : width <= 32 ? 4 : 5;
}

static void pad(uint8_t *to, size_t padded, const uint8_t *from, size_t width, size_t n) {
    for (size_t i = 0; i < n; i++, to += padded, from += width) {
        memcpy(to, from, width);
        memset(to + width, 0, padded - width);
    }
}

/* ------------------------------------------------------------------ buckets of substrings */

typedef struct {
    int bits;                /* of the substring */
    const uint8_t *mask;     /* where it lies in a code */
    const uint32_t *offsets; /* of the buckets, by the substring's value: 2^bits + 1 of them */
    const uint32_t *ids;     /* rows in the order of their buckets, by index within one */
    const uint8_t *rows;     /* their codes in that order, padded; NULL: look them up by id */
} Buckets;

typedef struct {
    const Buckets *tables;
    size_t table_count, table; /* table: the one that is probed now */
    uint32_t step;             /* at this distance between substrings */
    const uint8_t *query, *database;
    size_t width;              /* of the query, and of the codes it meets */
    size_t rows;               /* of the database */
} Probe;

INLINE unsigned ones_of(uint64_t x) {
#if defined(HAVE_NEON)
    return (unsigned)__builtin_popcountll(x);
#else
    x -= x >> 1 & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + (x >> 2 & 0x3333333333333333u);
    return (unsigned)(((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu) * 0x0101010101010101u >> 56);
#endif
}

static uint32_t masked_distance(const uint8_t *a, const uint8_t *b, const uint8_t *mask, size_t n) {
    uint32_t sum = 0;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) sum += ones_of((word_at(a + i) ^ word_at(b + i)) & word_at(mask + i));
    if (i < n)
        sum += ones_of((bytes_at(a + i, n - i) ^ bytes_at(b + i, n - i)) & bytes_at(mask + i, n - i));
    return sum;
}

/* A row turns up in every table where it is near enough: it counts in the first one only. */
static int first_found(const Probe *p, size_t at) {
    const Buckets *here = &p->tables[p->table];
    const uint8_t *row =
        here->rows ? here->rows + at * p->width : p->database + here->ids[at] * p->width;
    for (size_t t = 0; t < p->table_count; t++) {
        if (t == p->table) continue;
        uint32_t d = masked_distance(p->query, row, p->tables[t].mask, p->width);
        if (d < p->step || (d == p->step && t < p->table)) return 0;
    }
    return 1;
}

/* ------------------------------------------------------------------ the answer */

enum { NO_MEMORY = 1, NO_TABLE = 2 }; /* NO_TABLE: its offsets or ids are not those of the rows */

typedef struct {
    uint64_t *kept;      /* distance << 32 | row: the order of these numbers is the tie rule */
    uint64_t *scratch;   /* as large as kept, shared by all answers of a call; NULL: kept grows */
    size_t used, capacity;
    size_t k;
    uint32_t *counts;    /* rows kept at each distance; NULL when all rows below accept are wanted */
    size_t below;        /* rows kept at a distance below limit */
    uint32_t limit;      /* no row at this distance or above can be among the k nearest */
    uint32_t accept;     /* a row enters when its distance is below this */
    uint32_t in_order;   /* rows come by index, so that a later one loses every tie */
    const uint32_t *ids; /* row -> index, NULL where they are the same */
    const Probe *probe;  /* where a row may turn up more than once, NULL elsewhere */
    int failed;          /* NO_MEMORY or NO_TABLE */
} Answer;

/* By the digits from bit `shift` on; those below must be in order already. */
static void sort_keys(uint64_t *keys, uint64_t *scratch, size_t n, int shift) {
    if (n <= 48) {
        for (size_t i = 1; i < n; i++) {
            uint64_t key = keys[i];
            size_t j = i;
            for (; j > 0 && keys[j - 1] > key; j--) keys[j] = keys[j - 1];
            keys[j] = key;
        }
        return;
    }
    uint64_t *from = keys, *to = scratch, varying = 0;
    for (size_t i = 1; i < n; i++) varying |= keys[i] ^ keys[0];
    for (; shift < 48; shift += 8) {
        size_t starts[256] = {0}, sum = 0;
        if (!(varying >> shift & 255)) continue;
        for (size_t i = 0; i < n; i++) starts[from[i] >> shift & 255]++;
        for (int digit = 0; digit < 256; digit++) {
            size_t count = starts[digit];
            starts[digit] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++) to[starts[from[i] >> shift & 255]++] = from[i];
        uint64_t *other = from;
        from = to;
        to = other;
    }
    if (from != keys) memcpy(keys, from, n * sizeof *keys);
}

/* Drop what is too far by now; of rows that came in order, also those that lost a tie. */
static void sift(Answer *a) {
    size_t n = 0, ties = SIZE_MAX;
    if (a->in_order && a->below >= a->k) {
        a->counts[a->limit - 1] -= (uint32_t)(a->below - a->k);
        a->below = a->k;
        ties = a->counts[a->limit - 1];
    }
    for (size_t i = 0; i < a->used; i++) {
        uint64_t distance = a->kept[i] >> 32;
        if (distance + 1 < a->limit || (distance + 1 == a->limit && ties && ties--))
            a->kept[n++] = a->kept[i];
    }
    a->used = n;
}

static void fail(Answer *a, int why) {
    a->failed = why;
    a->accept = 0;
}

RARE int make_room(Answer *a) {
    if (!a->counts) {
        size_t capacity = a->capacity ? 2 * a->capacity : 64;
        uint64_t *larger = realloc(a->kept, capacity * sizeof *larger);
        if (!larger) {
            fail(a, NO_MEMORY);
            return 0;
        }
        a->kept = larger;
        a->capacity = capacity;
        return 1;
    }
    sift(a);
    if (a->used > a->capacity / 2 + a->k / 2) { /* many ties at the last distance */
        sort_keys(a->kept, a->scratch, a->used, 0);
        a->counts[a->limit - 1] -= (uint32_t)(a->used - a->k);
        a->used = a->below = a->k;
    }
    if (a->used < a->capacity) return 1;
    fail(a, NO_TABLE); /* all rows are here already: one came twice */
    return 0;
}

INLINE void keep(Answer *a, uint32_t distance, size_t row) {
    if (a->probe && !first_found(a->probe, row)) return;
    if (a->used == a->capacity && !make_room(a)) return;
    a->kept[a->used++] = (uint64_t)distance << 32 | (a->ids ? a->ids[row] : (uint32_t)row);
    if (!a->counts) return;
    a->counts[distance]++;
    a->below++;
    while (a->below - a->counts[a->limit - 1] >= a->k) a->below -= a->counts[--a->limit];
    if (a->below >= a->k) a->accept = a->limit - a->in_order;
}

/* ------------------------------------------------------------------ tables for many queries */

typedef struct {
    const uint8_t *queries; /* padded */
    size_t count, width;    /* width: padded */
    size_t slices;          /* of SLICE bytes that are not all padding */
    size_t line;            /* bytes of a line: query i in the low, line + i in the high half */
    uint8_t *table;
    Answer *answers;
    uint8_t first[2 * MAX_LINE];            /* what sums start from, see set_start */
    uint8_t waiting[TABLE_ROWS][MAX_LINE]; /* sums of the slices so far */
    uint16_t left[TABLE_ROWS];             /* the rows that they are of */
} Group;

typedef struct {
    uint32_t least, most;
} Range;

static Range accepted(const Group *g) {
    Range r = {ANY_DISTANCE, 0};
    for (size_t i = 0; i < g->count; i++) {
        uint32_t accept = g->answers[i].accept;
        if (accept < r.least) r.least = accept;
        if (accept > r.most) r.most = accept;
    }
    return r;
}

/* Is a look at the sums of codes of `all` slices worth it after `done` of them? Rows that have
   nothing to do with a query differ from it in half of the 64 bits of a slice, give or take: if
   that is too far for every query, few are left. And the sum of a byte must not run over: it does
   at 128 + accept, after two slices at the earliest. */
static int worth_a_look(size_t done, size_t all, Range accept) {
    return accept.most <= 20 * done || (done % 2 == 0 && accept.least + 64 < 32 * all);
}

static size_t line_bytes(size_t width) { return width <= 4 ? 64 : 32; }

/* Sums of distances start at 128 - accept, so that the top bit says "too far". Both queries of
   a byte are added at once; the high one is also added up apart, and taken off at the end. */
static void set_start(Group *g, size_t query) {
    size_t i = query % g->line;
    uint32_t low = i < g->count ? g->answers[i].accept : 0;
    uint32_t high = i + g->line < g->count ? g->answers[i + g->line].accept : 0;
    g->first[g->line + i] = (uint8_t)(128 - high);
    g->first[i] = (uint8_t)(128 - low + 16 * (128 - high));
}

/* The distances of every value of a byte to that byte of each query. Those of odd positions
   are cut at 7, so that the sum of two fits four bits: a sum may come out too small, never too
   large, and what looks near is measured again. */
static void fill_table(Group *g) {
    static const uint8_t ones[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};
    size_t line = g->line, bytes = g->slices * SLICE < g->width ? g->slices * SLICE : g->width;
    for (size_t at = 0; at < bytes; at++) {
        uint8_t *table = g->table + at * 256 * line, halves[2][16][MAX_LINE];
        for (size_t i = 0; i < line; i++) {
            int is_low = i < g->count, is_high = i + line < g->count;
            unsigned low = is_low ? g->queries[i * g->width + at] : 0;
            unsigned high = is_high ? g->queries[(i + line) * g->width + at] : 0;
            for (unsigned value = 0; value < 16; value++) { /* no query: the sum stays "too far" */
                halves[0][value][i] = (uint8_t)((is_low ? ones[value ^ (low & 15)] : 0) +
                                                (is_high ? 16 * ones[value ^ (high & 15)] : 0));
                halves[1][value][i] = (uint8_t)((is_low ? ones[value ^ low >> 4] : 0) +
                                                (is_high ? 16 * ones[value ^ high >> 4] : 0));
            }
        }
        for (unsigned value = 0; value < 256; value++) {
            const uint8_t *a = halves[0][value & 15], *b = halves[1][value >> 4];
            uint8_t *to = table + value * line;
            if (at % 2)
                for (size_t i = 0; i < line; i++) {
                    uint8_t sum = (uint8_t)(a[i] + b[i]);
                    to[i] = (uint8_t)(sum - (sum >> 3 & 0x11));
                }
            else
                for (size_t i = 0; i < line; i++) to[i] = (uint8_t)(a[i] + b[i]);
        }
    }
}

/* ------------------------------------------------------------------ planes for many queries */

#define PLANE_QUERIES 512            /* whose sums are held at once */
#define MAX_PLANES 14                /* of a sum, which is below 2 * ANY_DISTANCE */
#define TRIPLES(word) ((word) / 2 - 1) /* of planes that are added up, until two are left */
#define LOOKUPS (TRIPLES(64) + 2)
#define TABLE_PLANES (8 * TRIPLES(64) + 4)

typedef struct {
    const uint8_t *queries; /* padded */
    size_t count, width;    /* width: padded */
    size_t plane;           /* bytes of one: a block has eight rows to a byte */
    size_t words;           /* of a code: of 64 bits, or of all where there are fewer */
    int depth;              /* planes of a sum, the last of which says "too far" */
    Answer *answers;
    size_t left;                               /* queries that a block is not too far from yet */
    uint16_t active[PLANE_QUERIES];            /* which those are */
    int32_t starts[PLANE_QUERIES][MAX_PLANES]; /* what sums start from, see start_planes */
    uint16_t *lookups;                         /* of each query, word after word */
    uint8_t *planes, *table, *waiting;         /* waiting: sums of the words so far */
} Planes;

/* Sums start at 2^(depth - 1) - accept, so that the last plane says "too far". */
static void start_planes(Planes *g, size_t query) {
    uint32_t start = ((uint32_t)1 << (g->depth - 1)) - g->answers[query].accept;
    for (int p = 0; p < g->depth; p++) g->starts[query][p] = start >> p & 1 ? -1 : 0;
}

/* Where in the table of a word a query finds the carry of each three planes, and the two that
   are left: planes are taken from the front of a queue, and their sum goes to its end. */
static void plane_lookups(uint64_t query, int word, size_t plane, uint16_t *lookups) {
    uint8_t bits[64 + TRIPLES(64)];
    const int triples = TRIPLES(word);
    for (int i = 0; i < word; i++) bits[i] = query >> i & 1;
    for (int t = 0; t < triples; t++) {
        const uint8_t *three = bits + 3 * t;
        bits[word + t] = three[0] ^ three[1] ^ three[2];
        lookups[t] = (uint16_t)((size_t)(8 * t + 4 * three[0] + 2 * three[1] + three[2]) * plane);
    }
    for (int i = 0; i < 2; i++)
        lookups[triples + i] =
            (uint16_t)((size_t)(8 * triples + 2 * i + bits[3 * triples + i]) * plane);
}
