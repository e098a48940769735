/* Scans: which instruction sets there are, what one call holds, and the search by rows, by tables
   and by counting all. See _hamming.c. */

/* ------------------------------------------------------------------ instruction sets */

typedef void (*RowsFunction)(const uint8_t *query, const uint8_t *rows, size_t n, size_t width,
                             size_t first, size_t before, Answer *answer);
typedef void (*TablesFunction)(Group *group, const uint8_t *rows, size_t n, size_t first);
typedef void (*PlanesFunction)(Planes *group, const uint8_t *rows, size_t n, size_t first);
typedef void (*LookUpFunction)(const Probe *probe, size_t from, size_t to, Answer *answer);
typedef void (*DistancesFunction)(const uint8_t *query, const uint8_t *rows, size_t n,
                                  size_t width, uint16_t *distances);

typedef struct {
    const char *name;
    RowsFunction rows[6];
    TablesFunction tables[5]; /* 2, 4 and 8 bytes, more of them in slices, and any for few queries */
    PlanesFunction planes;
    size_t plane; /* bytes */
    LookUpFunction look_up;
    DistancesFunction distances;
    uint64_t (*ones_of_blocks)(const uint8_t *bytes, size_t blocks);
} Variant;

#define VARIANT(name, isa, planes, plane, ...) \
    {#name, {rows_2_##isa, rows_4_##isa, rows_8_##isa, rows_16_##isa, rows_32_##isa, \
            rows_wide_##isa}, {__VA_ARGS__}, planes, plane, look_up_##isa, distances_##isa, \
     ones_of_blocks_##isa}
#define TABLES(isa) \
    tables_2_##isa, tables_4_##isa, tables_8_##isa, tables_sliced_##isa, tables_half_##isa
#define NO_TABLES NULL, NULL, NULL, NULL, NULL

#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(name) JOIN(name, ISA)

/* _hamming_isa.h is compiled once for each instruction set. */

#if defined(HAVE_NEON)

#define ISA neon
#define ISA_NEON
#define ISA_VECTOR 16
#define ISA_BLOCK 64
#define TARGET TUNE
#include "_hamming_isa.h"
#undef ISA_NEON

#elif defined(HAVE_X86)

#define ISA avx512
#define ISA_AVX512
#define ISA_VECTOR 0 /* planes instead */
#define ISA_BLOCK 64
#define TARGET \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512vpopcntdq,avx512bitalg,avx2,popcnt")))
#include "_hamming_isa.h"
#undef ISA_AVX512

#define ISA avx2
#define ISA_AVX2
#define ISA_VECTOR 32
#define ISA_BLOCK 32
#define TARGET __attribute__((target("avx2,popcnt")))
#include "_hamming_isa.h"
#undef ISA_AVX2

#define ISA avx2
#define PLANE 32
#define TARGET __attribute__((target("avx2,popcnt")))
#include "_hamming_planes.h"

#define ISA avx512f
#define PLANE 64
#define TARGET __attribute__((target("avx512f,avx2,popcnt")))
#include "_hamming_planes.h"

#endif

#define ISA plain
#define ISA_PLAIN
#define ISA_VECTOR 0
#define ISA_BLOCK 16
#if defined(HAVE_X86)
#define TARGET __attribute__((target("popcnt")))
#else
#define TARGET
#endif
#include "_hamming_isa.h"
#undef ISA_PLAIN

static const Variant VARIANTS[] = {
#if defined(HAVE_NEON)
    VARIANT(neon, neon, NULL, 0, TABLES(neon)),
#elif defined(HAVE_X86)
    VARIANT(avx512, avx512, scan_block_avx512f, 64, NO_TABLES),
    VARIANT(avx512bw, avx2, scan_block_avx512f, 64, NO_TABLES), /* without popcounts */
    VARIANT(avx2, avx2, scan_block_avx2, 32, TABLES(avx2)),
#endif
    VARIANT(plain, plain, NULL, 0, NO_TABLES),
};
#define VARIANT_COUNT ((int)(sizeof VARIANTS / sizeof *VARIANTS))

static int runs_here(const Variant *variant) {
#if defined(HAVE_X86)
    __builtin_cpu_init();
    if (!strcmp(variant->name, "avx512"))
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bitalg") &&
               __builtin_cpu_supports("avx512vpopcntdq");
    if (!strcmp(variant->name, "avx512bw"))
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    if (!strcmp(variant->name, "avx2"))
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt");
    return __builtin_cpu_supports("popcnt");
#else
    (void)variant;
    return 1;
#endif
}

/* ------------------------------------------------------------------ one call: many answers */

#define GROUP 128         /* queries that are answered at once, unless by planes */
#define PLACED_SHARE 64   /* more rows than one of so many: not worth turning any away */
#define SAMPLE_SHARE 256  /* one row of so many tells how near the k nearest will be */
#define SAMPLE_LEAST 4    /* rows of the sample that must be nearer than a guess */
#define SAMPLE_QUERIES 16 /* worth the reading of the sample */

typedef struct {
    const Variant *variant;
    const uint8_t *queries, *rows;
    size_t count, n, width;
    size_t room;                           /* queries that can be answered at once */
    uint8_t *padded_queries, *padded_rows; /* NULL where the codes need no padding */
    Answer *answers;
    uint64_t *scratch;
    uint32_t *counts;
} Call;

static void close_call(Call *c) {
    if (c->answers)
        for (size_t i = 0; i < c->room; i++) free(c->answers[i].kept);
    free(c->answers);
    free(c->scratch);
    free(c->counts);
    free(c->padded_queries);
    free(c->padded_rows);
}

/* Room for the answers of `room` queries. k = 0: they hold every row below what is accepted, and
   grow. 0: out of memory. */
static int open_call(Call *c, size_t room, size_t k) {
    size_t capacity = 2 * k + 64 < c->n ? 2 * k + 64 : c->n, distances = 8 * c->width + 2;
    size_t padded = padded_width(c->width);
    c->room = room;
    c->answers = calloc(room, sizeof *c->answers);
    if (padded != c->width) {
        c->padded_queries = malloc(room * padded);
        c->padded_rows = malloc(TILE_BYTES > 32 * TABLE_ROWS ? TILE_BYTES : 32 * TABLE_ROWS);
        if (!c->padded_queries || !c->padded_rows) return 0;
    }
    if (!c->answers || !k) return c->answers != NULL;
    c->scratch = malloc(capacity * sizeof *c->scratch);
    c->counts = malloc(room * distances * sizeof *c->counts);
    if (!c->scratch || !c->counts) return 0;
    for (size_t i = 0; i < room; i++) {
        Answer *a = &c->answers[i];
        a->k = k;
        a->scratch = c->scratch;
        a->counts = c->counts + i * distances;
        a->capacity = capacity;
        a->kept = malloc(capacity * sizeof *a->kept);
        if (!a->kept) return 0;
    }
    return 1;
}

static void clear_answer(Answer *a, uint32_t accept) {
    a->used = a->below = 0;
    a->limit = a->accept = accept;
    if (a->counts) memset(a->counts, 0, (accept + 1) * sizeof *a->counts);
}

/* Take up `count` queries; `accept` is above every distance where the k nearest are wanted. */
static void take_queries(Call *c, const uint8_t *queries, size_t count, uint32_t accept,
                         uint32_t in_order) {
    c->queries = queries;
    c->count = count;
    if (c->padded_queries)
        pad(c->padded_queries, padded_width(c->width), queries, c->width, count);
    for (size_t i = 0; i < count; i++) {
        clear_answer(&c->answers[i], accept);
        c->answers[i].in_order = in_order;
    }
}

static uint32_t above_all(const Call *c) { return (uint32_t)(8 * c->width + 1); }

static const uint8_t *call_queries(const Call *c) {
    return c->padded_queries ? c->padded_queries : c->queries;
}

static const uint8_t *tile_at(Call *c, size_t first, size_t n) {
    const uint8_t *rows = c->rows + first * c->width;
    if (!c->padded_rows) return rows;
    pad(c->padded_rows, padded_width(c->width), rows, c->width, n);
    return c->padded_rows;
}

/* ------------------------------------------------------------------ scans */

static void scan_rows(Call *c, size_t from, size_t to) {
    size_t padded = padded_width(c->width), tile = TILE_BYTES / padded / 64 * 64;
    RowsFunction scan = c->variant->rows[width_class(c->width)];
    const uint8_t *queries = call_queries(c);
    if (!tile) tile = 64;
    for (size_t first = 0; first < c->n; first += tile) {
        size_t n = c->n - first < tile ? c->n - first : tile;
        const uint8_t *rows = tile_at(c, first, n);
        for (size_t i = from; i < to; i++)
            if (c->answers[i].accept)
                scan(queries + i * padded, rows, n, padded, first, 0, &c->answers[i]);
    }
}

/* All rows against the queries of one group. A table's sums tell distances from an accepted
   one of up to 128 only; until all queries are there (longer codes, first rows, or queries far
   from everything), a tile is scanned by rows. */
static void scan_group(Call *c, Group *g) {
    RowsFunction by_row = c->variant->rows[width_class(c->width)];
    const int full = g->count > g->line, kind = g->width > SLICE ? 3 : width_class(c->width);
    TablesFunction by_table = c->variant->tables[full ? kind : 4];
    for (size_t first = 0, n; first < c->n; first += n) {
        uint32_t most = accepted(g).most;
        if (!most) return; /* all have found k copies of themselves */
        n = first < 32 ? 32 : first < TABLE_ROWS ? first : TABLE_ROWS; /* limits fall fast at first */
        if (n > c->n - first) n = c->n - first;
        const uint8_t *rows = tile_at(c, first, n);
        if (most <= 128) {
            for (size_t i = 0; i < g->line; i++) set_start(g, i);
            by_table(g, rows, n, first);
        } else {
            for (size_t i = 0; i < g->count; i++)
                by_row(g->queries + i * g->width, rows, n, g->width, first, 0, &g->answers[i]);
        }
    }
}

static int scan_tables(Call *c) {
    Group *g = calloc(1, sizeof *g);
    if (!g) return 0;
    g->width = padded_width(c->width);
    g->slices = (c->width + SLICE - 1) / SLICE;
    g->line = line_bytes(c->width);
    uint8_t *memory = malloc(g->width * 256 * g->line + 64);
    g->table = (uint8_t *)(((uintptr_t)memory + 63) & ~(uintptr_t)63); /* lines of the cache */
    if (memory)
        for (size_t from = 0; from < c->count; from += 2 * g->line) {
            g->queries = call_queries(c) + from * g->width;
            g->count = c->count - from < 2 * g->line ? c->count - from : 2 * g->line;
            g->answers = c->answers + from;
            fill_table(g);
            scan_group(c, g);
        }
    free(memory);
    free(g);
    return memory != NULL;
}

/* All rows against the queries of one group; the first rows by themselves, because limits fall
   fast there. `last`: room for a block. */
static void scan_blocks(Call *c, Planes *g, uint8_t *last) {
    RowsFunction by_row = c->variant->rows[width_class(c->width)];
    const size_t block = 8 * g->plane;
    for (size_t first = 0, n; first < c->n; first += n) {
        n = c->n - first < block ? c->n - first : block;
        const uint8_t *rows = tile_at(c, first, n);
        if (!first || n < block / 4) {
            for (size_t i = 0; i < g->count; i++) {
                by_row(g->queries + i * g->width, rows, n, g->width, first, 0, &g->answers[i]);
                start_planes(g, i);
            }
        } else {
            if (n < block) rows = memcpy(last, rows, n * g->width);
            c->variant->planes(g, rows, n, first);
        }
    }
}

static int scan_planes(Call *c) {
    Planes *g = calloc(1, sizeof *g);
    if (!g) return 0;
    const size_t room = c->count < PLANE_QUERIES ? c->count : PLANE_QUERIES;
    g->plane = c->variant->plane;
    g->width = padded_width(c->width);
    g->words = (g->width + 7) / 8;
    for (g->depth = 6; (size_t)1 << g->depth <= 16 * g->width;) g->depth++;
    const size_t planes = 64 + TRIPLES(64) + TABLE_PLANES + room * (size_t)g->depth;
    uint8_t *memory = malloc(planes * g->plane + 63), *last = calloc(8 * g->plane, g->width);
    g->lookups = malloc(g->words * room * LOOKUPS * sizeof *g->lookups);
    g->planes = (uint8_t *)(((uintptr_t)memory + 63) & ~(uintptr_t)63); /* lines of the cache */
    g->table = g->planes + (64 + TRIPLES(64)) * g->plane;
    g->waiting = g->table + TABLE_PLANES * g->plane;
    const int done = memory && last && g->lookups;
    for (size_t from = 0; done && from < c->count; from += room) {
        g->queries = call_queries(c) + from * g->width;
        g->count = c->count - from < room ? c->count - from : room;
        g->answers = c->answers + from;
        for (size_t i = 0; i < g->words * g->count; i++) {
            size_t at = i / g->count * 8, bytes = g->width - at < 8 ? g->width - at : 8;
            uint64_t word = bytes_at(g->queries + i % g->count * g->width + at, bytes);
            plane_lookups(word, g->width < 8 ? (int)(8 * g->width) : 64, g->plane,
                          g->lookups + i * LOOKUPS);
        }
        scan_blocks(c, g, last);
    }
    free(g->lookups);
    free(last);
    free(memory);
    free(g);
    return done;
}

/* Why the first answer that failed did; 0: none. */
static int any_failed(const Call *c) {
    for (size_t i = 0; i < c->count; i++)
        if (c->answers[i].failed) return c->answers[i].failed;
    return 0;
}

static void cut_to_k(Call *c) {
    for (size_t i = 0; i < c->count; i++) {
        Answer *a = &c->answers[i];
        if (!a->counts) continue;
        sift(a);
        sort_keys(a->kept, a->scratch, a->used, a->in_order ? 32 : 0);
        if (a->used > a->k) a->used = a->k;
    }
}

static void write_nearest(Call *c, size_t k, int32_t *distances, int64_t *indices) {
    cut_to_k(c);
    for (size_t i = 0; i < c->count; i++) {
        const Answer *a = &c->answers[i];
        for (size_t j = 0; j < k; j++) {
            int found = j < a->used; /* always, unless a variant loses rows */
            distances[i * k + j] = found ? (int32_t)(a->kept[j] >> 32) : -1;
            indices[i * k + j] = found ? (int64_t)(uint32_t)a->kept[j] : -1;
        }
    }
}

/* BY_TABLES: by planes where there are none. */
enum { BY_ROWS, BY_TABLES, BY_PLANES };

static int way_of(const Call *c, int way) {
    if (way == BY_TABLES && !(c->width <= 32 && c->variant->tables[0])) way = BY_PLANES;
    return way == BY_PLANES && !c->variant->planes ? BY_ROWS : way;
}

static int scan_all(Call *c, int way) {
    way = way_of(c, way);
    if (way == BY_PLANES) return scan_planes(c);
    if (way == BY_TABLES) return scan_tables(c);
    scan_rows(c, 0, c->count);
    return 1;
}

/* The k nearest rows where k is a good share of them: measure all, count, and put each one in its
   place. 0: out of memory. */
static int place_all(Call *c, const uint8_t *queries, size_t count, size_t k, int32_t *distances,
                     int64_t *indices) {
    uint16_t *measured = malloc(c->n * sizeof *measured);
    size_t *places = malloc((8 * c->width + 2) * sizeof *places);
    for (size_t i = 0; measured && places && i < count; i++, distances += k, indices += k) {
        c->variant->distances(queries + i * c->width, c->rows, c->n, c->width, measured);
        memset(places, 0, (8 * c->width + 2) * sizeof *places);
        for (size_t row = 0; row < c->n; row++) places[measured[row] + 1]++;
        size_t farthest = 0, last; /* distance, and how many rows there find a place */
        while (places[farthest] + places[farthest + 1] < k) {
            farthest++;
            places[farthest] += places[farthest - 1];
        }
        last = k - places[farthest];
        for (size_t row = 0; row < c->n; row++) {
            size_t distance = measured[row];
            if (distance > farthest || (distance == farthest && !last)) continue;
            last -= distance == farthest;
            distances[places[distance]] = (int32_t)distance;
            indices[places[distance]++] = (int64_t)row;
        }
    }
    int done = measured && places;
    free(measured);
    free(places);
    return done;
}

static int scan(Call *c, int way);

/* A few rows tell below which distance the k nearest lie, so that most others are turned away
   from the start. */
static int guess_limits(Call *c, int way) {
    size_t wanted = 2 * c->answers[0].k / SAMPLE_SHARE + SAMPLE_LEAST;
    Call s = {.variant = c->variant, .n = c->n / SAMPLE_SHARE, .width = c->width};
    if (c->count < SAMPLE_QUERIES || s.n < 8 * wanted) return 1;
    uint8_t *rows = malloc(s.n * s.width);
    for (size_t i = 0; rows && i < s.n; i++)
        memcpy(rows + i * s.width, c->rows + i * SAMPLE_SHARE * s.width, s.width);
    s.rows = rows;
    int done = rows && open_call(&s, c->count, wanted);
    if (done) {
        take_queries(&s, c->queries, c->count, above_all(c), 1);
        done = scan(&s, way);
    }
    for (size_t i = 0; done && i < c->count; i++)
        c->answers[i].limit = c->answers[i].accept = s.answers[i].limit;
    close_call(&s);
    free(rows);
    return done;
}

/* 0: out of memory. */
static int scan(Call *c, int way) {
    int guess = c->count && c->answers[0].counts;
    if ((guess && !guess_limits(c, way)) || !scan_all(c, way)) return 0;
    for (size_t i = 0; guess && i < c->count; i++) {
        if (c->answers[i].below >= c->answers[i].k) continue;
        clear_answer(&c->answers[i], above_all(c)); /* the guess was too low */
        scan_rows(c, i, i + 1);
    }
    return !any_failed(c);
}

/* The k nearest rows of all queries, a group of them after the other. 0: out of memory. */
static int scan_for_nearest(Call *c, int way, const uint8_t *queries, size_t count, size_t k,
                            int32_t *distances, int64_t *indices) {
    size_t most = way_of(c, way) == BY_PLANES ? PLANE_QUERIES : GROUP;
    size_t room = count < most ? count : most;
    if (k > c->n / PLACED_SHARE) return place_all(c, queries, count, k, distances, indices);
    if (!open_call(c, room, k)) return 0;
    for (size_t from = 0; from < count; from += room) {
        size_t n = count - from < room ? count - from : room;
        take_queries(c, queries + from * c->width, n, above_all(c), 1);
        if (!scan(c, way)) return 0;
        write_nearest(c, k, distances + from * k, indices + from * k);
    }
    return 1;
}
