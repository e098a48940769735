/* The ways to search: which instruction sets there are, what one call holds, scans by rows and by
   tables, buckets, lists. See _hamming.c. */

/* ------------------------------------------------------------------ instruction sets */

typedef void (*RowsFunction)(const uint8_t *query, const uint8_t *rows, size_t n, size_t width,
                             size_t first, Answer *answer);
typedef void (*TablesFunction)(Group *group, const uint8_t *rows, size_t n, size_t first);
typedef void (*VisitFunction)(const Probe *probe, size_t from, size_t to, Answer *answer);
typedef void (*MatrixFunction)(const uint8_t *query, const uint8_t *rows, size_t n, size_t width,
                               int32_t *distances);

typedef struct {
    const char *name;
    RowsFunction rows[6];
    TablesFunction tables[4]; /* 2, 4 and 8 bytes, and more of them in slices */
    VisitFunction visit;
    MatrixFunction matrix;
} Variant;

#define VARIANT(isa, ...) \
    {#isa, {rows_2_##isa, rows_4_##isa, rows_8_##isa, rows_16_##isa, rows_32_##isa, \
            rows_wide_##isa}, {__VA_ARGS__}, visit_##isa, matrix_##isa}
#define TABLES(isa) tables_2_##isa, tables_4_##isa, tables_8_##isa, tables_sliced_##isa
#define NO_TABLES NULL, NULL, NULL, NULL

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
#define ISA_VECTOR 32
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
    VARIANT(neon, TABLES(neon)),
#elif defined(HAVE_X86)
    VARIANT(avx512, TABLES(avx512)),
    VARIANT(avx2, TABLES(avx2)),
#endif
    VARIANT(plain, NO_TABLES),
};
#define VARIANT_COUNT ((int)(sizeof VARIANTS / sizeof *VARIANTS))

static int runs_here(const Variant *variant) {
#if defined(HAVE_X86)
    __builtin_cpu_init();
    if (!strcmp(variant->name, "avx512"))
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bitalg") &&
               __builtin_cpu_supports("avx512vpopcntdq");
    if (!strcmp(variant->name, "avx2"))
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt");
    return __builtin_cpu_supports("popcnt");
#else
    (void)variant;
    return 1;
#endif
}

/* ------------------------------------------------------------------ one call: many answers */

#define SAMPLE_SHARE 64   /* one row of so many tells how near the k nearest will be */
#define SAMPLE_LEAST 8    /* rows of the sample that must be nearer than a guess */
#define SAMPLE_QUERIES 16 /* worth the reading of the sample */

typedef struct {
    const Variant *variant;
    const uint8_t *queries, *rows;
    size_t count, n, width;
    uint8_t *padded_queries, *padded_rows; /* NULL where the codes need no padding */
    Answer *answers;
    uint64_t *scratch;
    uint32_t *counts;
} Call;

static void close_call(Call *c) {
    if (c->answers)
        for (size_t i = 0; i < c->count; i++) free(c->answers[i].kept);
    free(c->answers);
    free(c->scratch);
    free(c->counts);
    free(c->padded_queries);
    free(c->padded_rows);
}

/* k = 0: every row below `accept` is wanted. `n` rows at most can enter an answer. */
static int open_answers(Call *c, size_t k, uint32_t accept, int in_order) {
    size_t capacity = 2 * k + 64 < c->n ? 2 * k + 64 : c->n, distances = 8 * c->width + 2;
    c->answers = calloc(c->count, sizeof *c->answers);
    if (!c->answers) return 0;
    if (k) {
        c->scratch = malloc(capacity * sizeof *c->scratch);
        c->counts = calloc(c->count * distances, sizeof *c->counts);
        if (!c->scratch || !c->counts) return 0;
    }
    for (size_t i = 0; i < c->count; i++) {
        Answer *a = &c->answers[i];
        a->k = k;
        a->accept = k ? (uint32_t)(8 * c->width + 1) : accept;
        a->limit = a->accept;
        a->in_order = (uint32_t)in_order;
        if (!k) continue;
        a->scratch = c->scratch;
        a->counts = c->counts + i * distances;
        a->capacity = capacity;
        a->kept = malloc(capacity * sizeof *a->kept);
        if (!a->kept) return 0;
    }
    return 1;
}

static int pad_queries(Call *c) {
    size_t padded = padded_width(c->width);
    if (padded == c->width) return 1;
    c->padded_queries = malloc(c->count * padded);
    c->padded_rows = malloc(TILE_BYTES);
    if (!c->padded_queries || !c->padded_rows) return 0;
    pad(c->padded_queries, padded, c->queries, c->width, c->count);
    return 1;
}

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
                scan(queries + i * padded, rows, n, padded, first, &c->answers[i]);
    }
}

static int farthest_accept(const Call *c, size_t from, size_t to) {
    uint32_t most = 0;
    for (size_t i = from; i < to; i++)
        if (c->answers[i].accept > most) most = c->answers[i].accept;
    return (int)most;
}

/* All rows against the queries of one group. A table's sums tell distances from an accepted
   one of up to 128 only; until all queries are there (longer codes, first rows, or queries far
   from everything), a tile is scanned by rows. */
static void scan_group(Call *c, Group *g, size_t from) {
    RowsFunction by_row = c->variant->rows[width_class(c->width)];
    TablesFunction by_table = c->variant->tables[g->width > SLICE ? 3 : width_class(c->width)];
    for (size_t first = 0, n; first < c->n; first += n) {
        n = first < 32 ? 32 : first < TABLE_ROWS ? first : TABLE_ROWS; /* limits fall fast at first */
        if (n > c->n - first) n = c->n - first;
        const uint8_t *rows = tile_at(c, first, n);
        if (farthest_accept(c, from, from + g->count) <= 128) {
            for (size_t i = 0; i < g->line; i++) set_start(g, i);
            by_table(g, rows, n, first);
        } else {
            for (size_t i = 0; i < g->count; i++)
                by_row(g->queries + i * g->width, rows, n, g->width, first, &g->answers[i]);
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
            scan_group(c, g, from);
        }
    free(memory);
    free(g);
    return memory != NULL;
}

static int any_failed(const Call *c) {
    for (size_t i = 0; i < c->count; i++)
        if (c->answers[i].failed) return 1;
    return 0;
}

static void cut_to_k(Call *c) {
    for (size_t i = 0; i < c->count; i++) {
        Answer *a = &c->answers[i];
        if (!a->counts) continue;
        sift(a);
        sort_keys(a->kept, a->scratch, a->used);
        if (a->used > a->k) a->used = a->k;
    }
}

static void write_nearest(Call *c, size_t k, int32_t *distances, int64_t *indices) {
    cut_to_k(c);
    for (size_t i = 0; i < c->count; i++) {
        const Answer *a = &c->answers[i];
        for (size_t j = 0; j < k; j++) {
            distances[i * k + j] = (int32_t)(a->kept[j] >> 32);
            indices[i * k + j] = (int64_t)(uint32_t)a->kept[j];
        }
    }
}

static int scan_all(Call *c, int tables) {
    if (tables && c->width <= 32 && c->variant->tables[0]) return scan_tables(c);
    scan_rows(c, 0, c->count);
    return 1;
}

/* A few rows tell below which distance the k nearest lie, so that most others are turned away
   from the start. */
static int guess_limits(Call *c, int tables) {
    size_t wanted = 2 * c->answers[0].k / SAMPLE_SHARE;
    Call s = {.variant = c->variant, .queries = c->queries, .count = c->count, .width = c->width};
    s.n = c->n / SAMPLE_SHARE;
    if (wanted < SAMPLE_LEAST) wanted = SAMPLE_LEAST;
    if (c->count < SAMPLE_QUERIES || s.n < 8 * wanted) return 1;
    uint8_t *rows = malloc(s.n * s.width);
    for (size_t i = 0; rows && i < s.n; i++)
        memcpy(rows + i * s.width, c->rows + i * SAMPLE_SHARE * s.width, s.width);
    s.rows = rows;
    int done = rows && pad_queries(&s) && open_answers(&s, wanted, 0, 1) && scan_all(&s, tables);
    for (size_t i = 0; done && i < c->count; i++)
        c->answers[i].limit = c->answers[i].accept = s.answers[i].limit;
    close_call(&s);
    free(rows);
    return done;
}

/* The guess was too low: all over again without one. */
static void scan_again(Call *c, size_t query) {
    Answer *a = &c->answers[query];
    a->used = a->below = 0;
    a->limit = a->accept = (uint32_t)(8 * c->width + 1);
    memset(a->counts, 0, (a->limit + 1) * sizeof *a->counts);
    scan_rows(c, query, query + 1);
}

/* 0: out of memory. */
static int scan(Call *c, int tables) {
    int guess = c->count && c->answers[0].counts;
    int done = pad_queries(c) && (!guess || guess_limits(c, tables)) && scan_all(c, tables);
    for (size_t i = 0; done && guess && i < c->count; i++)
        if (c->answers[i].below < c->answers[i].k) scan_again(c, i);
    return done && !any_failed(c);
}

static void scan_lists(Call *c, const uint32_t *probes, size_t probe_count, const int64_t *offsets,
                       const uint32_t *ids) {
    size_t padded = padded_width(c->width), tile = TILE_BYTES / padded;
    RowsFunction scan = c->variant->rows[width_class(c->width)];
    for (size_t i = 0; i < c->count; i++)
        for (size_t j = 0; j < probe_count; j++) {
            size_t list = probes[i * probe_count + j], end = (size_t)offsets[list + 1];
            for (size_t first = (size_t)offsets[list]; first < end; first += tile) {
                size_t n = end - first < tile ? end - first : tile;
                c->answers[i].ids = ids;
                scan(call_queries(c) + i * padded, tile_at(c, first, n), n, padded, first,
                     &c->answers[i]);
            }
        }
}

/* ------------------------------------------------------------------ buckets */

#define BATCH 32

/* Rows by their keys, equal keys by index: a counting sort. offsets has one entry more than there
   are buckets. 0: a key is too large. */
static int sort_into_buckets(const uint32_t *keys, size_t n, size_t buckets, uint32_t *offsets,
                             uint32_t *ids, const uint8_t *rows, uint8_t *sorted, size_t width) {
    memset(offsets, 0, (buckets + 1) * sizeof *offsets);
    for (size_t i = 0; i < n; i++) {
        if (keys[i] >= buckets) return 0;
        offsets[keys[i]]++;
    }
    uint32_t end = 0;
    for (size_t b = 0; b <= buckets; b++) {
        end += offsets[b];
        offsets[b] = end;
    }
    for (size_t i = n; i-- > 0;) { /* from behind: what is left are the starts */
        uint32_t at = --offsets[keys[i]];
        ids[at] = (uint32_t)i;
        if (sorted) memcpy(sorted + at * width, rows + i * width, width);
    }
    return 1;
}

/* All buckets whose substring differs from the query's in exactly `step` bits. The batches let
   the memory fetch the first rows of later buckets while earlier ones are looked through. */
static size_t probe_step(const Variant *variant, const Probe *p, uint32_t key, Answer *answer) {
    const Buckets *table = &p->tables[p->table];
    uint64_t end = (uint64_t)1 << table->bits, mask = ((uint64_t)1 << p->step) - 1;
    size_t from[BATCH], to[BATCH], rows = 0;
    do {
        uint32_t n = 0;
        do {
            const uint32_t *offset = table->offsets + (key ^ (uint32_t)mask);
            if (offset[0] < offset[1]) {
                from[n] = offset[0];
                to[n] = offset[1];
                rows += to[n] - from[n];
                PREFETCH(table->ids + from[n]);
                if (table->rows) PREFETCH(table->rows + from[n] * p->width);
                n++;
            }
            if (!mask) {
                mask = end;
                break;
            }
            uint64_t low = mask & (0 - mask), ripple = mask + low; /* next of as many ones */
            mask = ripple | ((mask ^ ripple) >> 2) / low;
        } while (mask < end && n < BATCH);
        for (uint32_t i = 0; i < n; i++) variant->visit(p, from[i], to[i], answer);
    } while (mask < end);
    return rows;
}

static double choose(int n, uint32_t r) {
    double ways = 1;
    for (uint32_t i = 0; i < r; i++) ways = ways * (n - (int)i) / (i + 1);
    return ways;
}

/* One query against the buckets; 0 when the scan is the cheaper way (costs are in units of one
   row's share of a scan). `radius` counts when the answer has no k. */
static int search_buckets(const Variant *variant, Probe *p, const uint32_t *keys, size_t n,
                          uint32_t radius, Answer *answer, double row_cost, double bucket_cost) {
    double spent = 0;
    for (uint32_t step = 0;; step++) {
        int any = 0;
        for (size_t t = 0; t < p->table_count; t++) {
            int bits = p->tables[t].bits;
            if ((int)step > bits) continue;
            any = 1;
            p->table = t;
            p->step = step;
            double buckets = choose(bits, step), share = buckets / (double)((uint64_t)1 << bits);
            if (spent + bucket_cost * buckets + row_cost * share * (double)n > (double)n) return 0;
            spent += bucket_cost * buckets;
            spent += row_cost * (double)probe_step(variant, p, keys[t], answer);
            size_t reached = p->table_count * step + t; /* all rows this near have been found */
            if (answer->counts ? answer->below >= answer->k && answer->limit <= reached + 1
                               : radius <= reached)
                return 1;
            if (spent > (double)n) return 0;
        }
        if (!any) return 1;
    }
}
