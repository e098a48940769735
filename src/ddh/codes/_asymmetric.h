/* Asymmetric search: the real-valued outputs of a query against packed codes.

   The score of a row is the sum of its bits, +1 or -1, times the query's values. A query holds
   the sums of every four values by the 16 patterns of half a byte, and a score is defined as

       total = 0; for each byte: total += sums of its first four bits + sums of its last four

   in double precision, so that every kernel gives the same bits.

   Most rows are turned away by a bound of their loss, which is the largest score minus their own
   and a sum over half bytes of something that is never negative. Losses are scaled so that what
   the k-th best row loses is about 254, rounded down to bytes, and added with saturation: such a
   sum is never above the scaled loss, so a row whose sum is above the limit cannot enter. The
   others are scored. Tables of 16 bytes are looked up in registers, 16 to 64 rows at once; a
   tile of rows is rearranged for that, once for all queries (André, Kermarrec and Le Scouarnec,
   "Cache locality is not enough", VLDB 2015, has such tables for product quantisation).

   Many queries share a larger table instead: for each value of each byte of a code, a line of it
   holds what that byte loses for up to 128 queries, one to a byte of the line. The sums of a row
   for all of them are then as many loads and additions as it has bytes. The first rows are
   ranked for each query by itself, so that the scale of the table holds for most of the others.

   One query alone is not worth any rearrangement. Where the processor counts the bits of vectors,
   its losses are bounded by that: what a bit loses is rounded down to a few binary digits, and for
   each digit the bits are counted that differ and have it. */

#include <math.h>

#define STEP 4              /* vectors of rows that share the loading of a table */
#define PART 16             /* half bytes whose losses are added in bytes: codes of 64 bits */
#define TILE_HALVES 16384   /* half bytes of the rows of a tile */
#define AHEAD 1024          /* bytes of rows that are fetched before they are needed */
#define SCORED_SHARE 32     /* one row of so many tells how high the k best will score */
#define SAMPLE_RUN 4        /* of these lie side by side, so that fewer lines of a cache are read */
#define RESCALE 0.85        /* scale anew when the loss of the k-th row has fallen by this */
#define ROUNDING 1e-12      /* more than what rounding adds to a scaled loss, relatively */
#define MOST_TOGETHER 128   /* queries that share a table */
#define TABLE_MOST 262144    /* bytes of it: a part of a second cache */
#define TOGETHER_ROWS 32768 /* fewer rows are not worth it */
#define HEAD_SHARE 32       /* one row of so many is ranked for each query first: limits fall fast there */
#define LINE_ROWS 8192      /* between two looks at the scale of a table */
#define DIGITS 4            /* of what a bit loses, where bits are counted */
#define COUNT_STEP 32       /* rows that are counted between two looks at the answers */

typedef struct {
    double score;
    uint32_t row;
} Scored;

typedef struct {
    size_t width, k, used;
    const double *values; /* of the query, 8 for each byte of a code */
    double *sums;         /* 16 for each half byte */
    uint8_t *losses;      /* the same, scaled and rounded down */
    Scored *heap;         /* the best rows so far, the worst of them first */
    double best, slack;   /* the highest score, and more than the rounding of any score */
    double floor;         /* a row with a lower score cannot enter */
    double scale, scaled; /* of losses, and the loss of such a row when it was chosen */
    unsigned shift;       /* of the sums of codes with several parts, to fit a byte */
    uint8_t limit;        /* nor can a row with a sum above this */
} Ranking;

INLINE double score_of(const double *sums, const uint8_t *row, size_t width) {
    double total = 0;
    for (size_t i = 0; i < width; i++, sums += 32)
        total += sums[row[i] >> 4] + sums[16 + (row[i] & 15)];
    return total;
}

/* values: 8 for each byte of a code. */
static void fill_sums(double *sums, const double *values, size_t width) {
    for (size_t half = 0; half < 2 * width; half++, values += 4, sums += 16)
        for (unsigned bits = 0; bits < 16; bits++) {
            double sum = bits & 8 ? values[0] : -values[0];
            sum = bits & 4 ? sum + values[1] : sum - values[1];
            sum = bits & 2 ? sum + values[2] : sum - values[2];
            sums[bits] = bits & 1 ? sum + values[3] : sum - values[3];
        }
}

static void start_ranking(Ranking *r) {
    fill_sums(r->sums, r->values, r->width);
    /* Additions are monotonic, so the row that agrees with all signs has the highest score. */
    r->best = 0;
    for (size_t i = 0; i < r->width; i++) {
        double most[2] = {0, 0};
        for (size_t j = 0; j < 32; j++)
            if (r->sums[32 * i + j] > most[j / 16]) most[j / 16] = r->sums[32 * i + j];
        r->best += most[0] + most[1];
    }
    r->slack = 16e-16 * (double)(r->width + 4) * r->best;
    for (r->shift = 0; (r->width + 7) / 8 > (size_t)1 << r->shift;) r->shift++;
}

static int worse(const Scored *a, const Scored *b) {
    return a->score < b->score || (a->score == b->score && a->row > b->row);
}

static void sift_down(Scored *heap, size_t n, Scored x) {
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && worse(&heap[child + 1], &heap[child])) child++;
        if (!worse(&heap[child], &x)) break;
        heap[at] = heap[child];
    }
    heap[at] = x;
}

/* What the k-th row is made to lose. With several parts, most rows must not reach the 255 at which
   a part is cut. */
static double scaled_loss(size_t width) { return width <= 8 ? 254 : 160 * (double)((width + 7) / 8); }

static void scale_losses(Ranking *r, double loss) {
    const double *sums = r->sums;
    uint8_t *to = r->losses;
    r->scale = loss > 1e-290 ? scaled_loss(r->width) / loss : 0;
    r->scaled = loss;
    for (size_t half = 0; half < 2 * r->width; half++, sums += 16, to += 16) {
        double most = 0, scale = r->scale * (1 - ROUNDING);
        for (int i = 0; i < 16; i++) most = sums[i] > most ? sums[i] : most;
        for (int i = 0; i < 16; i++) {
            double x = (most - sums[i]) * scale;
            to[i] = (uint8_t)(int)(x < 255 ? x : 255);
        }
    }
}

/* The limit of the next step, with a new scale where that makes losses much finer. */
static void set_limit(Ranking *r) {
    double loss = r->best - r->floor + r->slack;
    if (r->floor == -INFINITY) {
        r->limit = 255; /* above all sums */
        return;
    }
    if (!(loss > RESCALE * r->scaled)) scale_losses(r, loss);
    r->limit = (uint8_t)((unsigned)(loss * r->scale * (1 + ROUNDING)) >> r->shift);
}

static void clear_ranking(Ranking *r, double floor) {
    r->used = 0;
    r->floor = floor;
    r->scaled = INFINITY;
    set_limit(r);
}

static void offer(Ranking *r, double score, size_t row) {
    Scored x = {score, (uint32_t)row};
    if (r->used < r->k) {
        size_t at = r->used++;
        for (; at && worse(&x, &r->heap[(at - 1) / 2]); at = (at - 1) / 2)
            r->heap[at] = r->heap[(at - 1) / 2];
        r->heap[at] = x;
    } else if (worse(&r->heap[0], &x)) {
        sift_down(r->heap, r->k, x);
    }
    if (r->used == r->k) r->floor = r->heap[0].score;
}

/* Nothing can enter any more: rows come by index. */
static int is_full(const Ranking *r) { return r->used == r->k && r->floor >= r->best; }

static void write_ranking(Ranking *r, double *scores, int64_t *indices) {
    for (size_t i = r->used; i-- > 0;) {
        scores[i] = r->heap[0].score;
        indices[i] = r->heap[0].row;
        sift_down(r->heap, i, r->heap[i]);
    }
}

/* ------------------------------------------------------------------ many queries */

typedef struct {
    Ranking *rankings;
    size_t count, line, width; /* line: bytes, one for each query */
    size_t bytes;              /* of a vector */
    uint8_t *table;            /* for each value of each byte of a code, its losses in a line */
    double scale[MOST_TOGETHER], scaled[MOST_TOGETHER];
    uint8_t start[2 * MOST_TOGETHER]; /* what sums start from, in bytes or in words */
} Together;

/* Sums start so far from "too far" as a row may lose that can still enter. */
static void start_sum(Together *g, size_t i) {
    const Ranking *r = &g->rankings[i];
    const int open = i < g->count && !is_full(r);
    double loss = open ? (r->best - r->floor + r->slack) * g->scale[i] * (1 + ROUNDING) : -1;
    if (g->width <= 8) {
        g->start[i] = (uint8_t)(loss < 0 ? 255 : 254 - (unsigned)loss);
    } else { /* words lie as WIDE_LOW and WIDE_HIGH take the bytes of a vector apart */
        const size_t place = i % g->bytes, vector = i / g->bytes * 2 + (place % 16 >= 8);
        uint16_t word = (uint16_t)(loss < 0 ? 32768 : 32767 - (unsigned)loss);
        memcpy(g->start + vector * g->bytes + (place / 16 * 8 + place % 8) * 2, &word, 2);
    }
}

/* Is it worth it to fill the table anew, with finer losses? */
static int is_coarse(const Together *g) {
    size_t coarse = 0;
    for (size_t i = 0; i < g->count; i++) {
        const Ranking *r = &g->rankings[i];
        coarse += r->best - r->floor + r->slack < RESCALE * g->scaled[i];
    }
    return 4 * coarse > g->count;
}

static void scale_lines(Together *g) {
    for (size_t i = 0; i < g->line; i++) {
        const Ranking *r = &g->rankings[i < g->count ? i : 0];
        double loss = r->best - r->floor + r->slack;
        g->scaled[i] = loss;
        g->scale[i] = loss > 1e-290 ? scaled_loss(g->width) / loss : 0;
        start_sum(g, i);
    }
}

/* ------------------------------------------------------------------ one query */

typedef struct {
    uint64_t signs;          /* of the query, as a row that agrees with all of them has its bits */
    uint64_t digits[DIGITS]; /* bits whose loss has this digit, the highest first */
    double unit;             /* that losses are counted in */
} Weights;

/* A bit that differs loses 2 |value|. The unit is that which keeps most of these losses. */
static Weights weights_of(const double *values) {
    const unsigned most = (1u << DIGITS) - 1;
    double largest = 0, kept = 0;
    Weights w = {.unit = 1};
    for (int i = 0; i < 64; i++) {
        if (values[i] >= 0) w.signs |= 1ull << (i ^ 7); /* bytes begin with their highest bit */
        largest = fabs(values[i]) > largest ? fabs(values[i]) : largest;
    }
    for (double share = 1; largest > 1e-290 && share > 0.3; share *= 0.8) {
        const double unit = 2 * largest * share / most;
        uint64_t digits[DIGITS] = {0};
        double sum = 0;
        for (int i = 0; i < 64; i++) {
            const double loss = 2 * fabs(values[i]) / unit * (1 - ROUNDING);
            const unsigned whole = loss < most ? (unsigned)loss : most;
            sum += unit * whole;
            for (int d = 0; d < DIGITS; d++)
                digits[d] |= (uint64_t)(whole >> (DIGITS - 1 - d) & 1) << (i ^ 7);
        }
        if (sum <= kept) continue;
        kept = sum;
        w.unit = unit;
        memcpy(w.digits, digits, sizeof digits);
    }
    return w;
}

/* Losses that a row may have which can still enter. */
static uint64_t counted_limit(const Ranking *r, const Weights *w) {
    if (r->floor == -INFINITY) return 64 << DIGITS;
    const double loss = (r->best - r->floor + r->slack) / w->unit * (1 + ROUNDING);
    return loss < (64 << DIGITS) ? (uint64_t)loss : 64 << DIGITS;
}

/* ------------------------------------------------------------------ instruction sets */

/* Rows are rearranged by bytes in blocks of a vector; the width is padded to one that fits. */
static size_t tile_width(size_t width) { return width <= 8 ? 8 : (width + 15) / 16 * 16; }

typedef struct {
    const char *name;
    size_t rows; /* of a step */
    void (*arrange)(const uint8_t *rows, size_t width, uint8_t *tile);
    void (*scan)(const uint8_t *tile, const uint8_t *rows, size_t n, size_t first, Ranking *r);
    size_t vector; /* queries of a vector, one or two of which make a line; 0: no tables */
    size_t costs[2]; /* of a row for such a line: that of so many queries by themselves */
    void (*fill)(Together *g);
    void (*scan_lines)(Together *g, const uint8_t *rows, size_t n, size_t first);
    void (*count)(const uint8_t *rows, size_t n, Ranking *r); /* or NULL */
} Asymmetric;

static void scan_plain(const uint8_t *tile, const uint8_t *rows, size_t n, size_t first,
                       Ranking *r) {
    (void)tile;
    for (size_t i = 0; i < n; i++) {
        double score = score_of(r->sums, rows + i * r->width, r->width);
        if (score >= r->floor) offer(r, score, first + i);
    }
}

#if defined(HAVE_NEON)

#define ISA neon
#define ISA_NEON
#define TARGET TUNE
#include "_asymmetric_isa.h"
#undef ISA_NEON

#elif defined(HAVE_X86)

#define ISA avx512bw
#define ISA_AVX512
#define TARGET __attribute__((target("avx512f,avx512bw,avx2,bmi,popcnt")))
#include "_asymmetric_isa.h"
#undef ISA_AVX512

#define ISA avx2
#define TARGET __attribute__((target("avx2,bmi,popcnt")))
#include "_asymmetric_isa.h"

/* All rows of 8 bytes for one query. */
__attribute__((target("avx512f,avx512vpopcntdq,bmi,popcnt"))) static void count_avx512(
    const uint8_t *rows, size_t n, Ranking *r) {
    const Weights w = weights_of(r->values);
    const __m512i signs = _mm512_set1_epi64((int64_t)w.signs);
    __m512i limit = _mm512_set1_epi64((int64_t)counted_limit(r, &w)), digits[DIGITS];
    for (int d = 0; d < DIGITS; d++) digits[d] = _mm512_set1_epi64((int64_t)w.digits[d]);
    size_t first = 0;
    for (; first + COUNT_STEP <= n; first += COUNT_STEP, rows += 8 * COUNT_STEP) {
        uint32_t mask = 0;
        UNROLL for (int v = 0; v < COUNT_STEP / 8; v++) {
            const __m512i x = _mm512_loadu_si512(rows + 64 * v);
            __m512i sum = _mm512_setzero_si512();
            PREFETCH(rows + AHEAD + 64 * v);
            UNROLL for (int d = 0; d < DIGITS; d++) { /* (x ^ signs) & digit */
                const __m512i lost = _mm512_ternarylogic_epi64(x, signs, digits[d], 0x28);
                sum = _mm512_add_epi64(_mm512_add_epi64(sum, sum), _mm512_popcnt_epi64(lost));
            }
            mask |= (uint32_t)_mm512_cmple_epu64_mask(sum, limit) << 8 * v;
        }
        if (!mask) continue;
        for (; mask; mask &= mask - 1) {
            const size_t i = (size_t)trailing_zeros(mask);
            const double score = score_of(r->sums, rows + 8 * i, 8);
            if (score >= r->floor) offer(r, score, first + i);
        }
        if (is_full(r)) return;
        limit = _mm512_set1_epi64((int64_t)counted_limit(r, &w));
    }
    scan_plain(NULL, rows, n - first, first, r);
}

#endif

static const Asymmetric *asymmetric_named(const char *name) {
    static const Asymmetric all[] = {
#if defined(HAVE_NEON)
        {"neon", STEP * 16, arrange_neon, scan_losses_neon, 0, {0, 0}, NULL, NULL, NULL},
#elif defined(HAVE_X86)
        {"avx512", STEP * 64, arrange_avx512bw, scan_losses_avx512bw, 64, {38, 60},
         fill_table_avx512bw, scan_lines_avx512bw, count_avx512},
        {"avx512bw", STEP * 64, arrange_avx512bw, scan_losses_avx512bw, 64, {38, 60},
         fill_table_avx512bw, scan_lines_avx512bw, NULL},
        {"avx2", STEP * 32, arrange_avx2, scan_losses_avx2, 32, {16, 25}, fill_table_avx2,
         scan_lines_avx2, NULL},
#endif
        {"plain", 256, NULL, scan_plain, 0, {0, 0}, NULL, NULL, NULL},
    };
    const Asymmetric *found = all;
    while (strcmp(found->name, name)) found++;
    return found;
}

/* ------------------------------------------------------------------ one call */

/* Rearrange n rows, in steps, for all queries. */
static void fill_tile(const Asymmetric *a, const Call *c, size_t first, size_t n, uint8_t *tile,
                      uint8_t *padded) {
    size_t width = tile_width(c->width);
    for (size_t i = 0; i < n; i += a->rows, tile += a->rows * width * 2) {
        const uint8_t *rows = c->rows + (first + i) * c->width;
        size_t count = n - i < a->rows ? n - i : a->rows;
        if (width != c->width || count < a->rows) {
            pad(padded, width, rows, c->width, count);
            rows = padded;
        }
        a->arrange(rows, width, tile);
    }
}

/* Rows begin..end for the rankings from..to. 0: out of memory. */
static int rank_tiles(const Call *c, size_t begin, size_t end, Ranking *from, Ranking *to) {
    const Asymmetric *a = asymmetric_named(c->variant->name);
    size_t width = tile_width(c->width), steps = TILE_HALVES / (a->rows * width * 2);
    size_t n = a->rows * (steps ? steps : 1), open = 1;
    uint8_t *tile = malloc(n * width * 2 + 64), *padded = calloc(a->rows, width);
    uint8_t *aligned = (uint8_t *)(((uintptr_t)tile + 63) & ~(uintptr_t)63);
    for (size_t first = begin; tile && padded && first < end && open; first += n) {
        size_t rows = end - first < n ? end - first : n;
        if (a->arrange) fill_tile(a, c, first, rows, aligned, padded);
        open = 0;
        for (Ranking *r = from; r < to; r++) {
            if (is_full(r)) continue;
            a->scan(aligned, c->rows + first * c->width, rows, first, r);
            open++;
        }
    }
    free(tile);
    free(padded);
    return tile && padded;
}

/* Rows begin..n for `count` rankings, by a table of `vectors` to a line. */
static int rank_together(const Call *c, const Asymmetric *a, size_t begin, Ranking *rankings,
                         size_t count, size_t vectors) {
    Together *g = calloc(1, sizeof *g);
    const size_t line = vectors * a->vector;
    uint8_t *memory = malloc(c->width * 256 * line + 63);
    if (g && memory) {
        *g = (Together){.rankings = rankings, .count = count, .line = line, .width = c->width,
                        .bytes = a->vector,
                        .table = (uint8_t *)(((uintptr_t)memory + 63) & ~(uintptr_t)63)};
        for (size_t first = begin, n; first < c->n; first += n) {
            n = c->n - first < LINE_ROWS ? c->n - first : LINE_ROWS;
            if (first == begin || is_coarse(g)) {
                scale_lines(g);
                a->fill(g);
            }
            a->scan_lines(g, c->rows + first * c->width, n, first);
        }
    }
    int good = g && memory;
    free(memory);
    free(g);
    return good;
}

/* Vectors of a line for `count` queries that costs least; 0: each is better off by itself. */
static size_t line_vectors(const Asymmetric *a, size_t width, size_t count) {
    const size_t most = a->vector ? TABLE_MOST / (256 * width * a->vector) : 0;
    const size_t more = count > a->vector ? count - a->vector : 0;
    if (most >= 2 && a->costs[1] < count && a->costs[1] < a->costs[0] + more) return 2;
    return most && a->costs[0] + more < count;
}

/* All rows for the rankings, the first of them for each by itself where no sample gave them a scale.
   0: out of memory. */
static int rank_all(const Call *c, Ranking *rankings, size_t count) {
    const Asymmetric *a = asymmetric_named(c->variant->name);
    const size_t k = rankings->k, share = c->n / HEAD_SHARE;
    size_t head = c->n, from = 0;
    if (count == 1 && c->width == 8 && a->count) {
        a->count(c->rows, c->n, rankings);
        return 1;
    }
    if (c->n >= TOGETHER_ROWS && line_vectors(a, c->width, count)) {
        head = 0;
        for (size_t i = 0; i < count; i++)
            if (rankings[i].floor == -INFINITY) head = share > 2 * k ? share : 2 * k;
    }
    int good = rank_tiles(c, 0, head, rankings, rankings + count);
    while (good && head < c->n && from < count) {
        size_t vectors = line_vectors(a, c->width, count - from), n = vectors * a->vector;
        if (!n || n > count - from) n = count - from;
        Ranking *r = rankings + from;
        int known = vectors > 0;
        for (size_t i = 0; i < n; i++) known = known && r[i].floor > -INFINITY;
        good = known ? rank_together(c, a, head, r, n, vectors) : rank_tiles(c, head, c->n, r, r + n);
        from += n;
    }
    return good;
}

static int rank_rows(const Call *c, const double *values, size_t k, double *scores,
                     int64_t *indices);

/* Scores that the k best rows will hardly be below, from a few rows. 0: out of memory. */
static int guess_floors(const Call *c, const double *values, size_t k, double *floors) {
    const size_t wanted = 2 * k / SCORED_SHARE + SAMPLE_LEAST, count = c->count;
    const size_t apart = SCORED_SHARE * SAMPLE_RUN, runs = c->n / apart, run = SAMPLE_RUN * c->width;
    Call s = {.variant = c->variant, .count = count, .n = runs * SAMPLE_RUN, .width = c->width};
    for (size_t i = 0; i < count; i++) floors[i] = -INFINITY;
    if (k < SCORED_SHARE || s.n < 8 * wanted) return 1;
    uint8_t *rows = malloc(s.n * s.width);
    double *scores = malloc(count * wanted * sizeof *scores);
    int64_t *indices = malloc(count * wanted * sizeof *indices);
    for (size_t i = 0; rows && i < runs; i++)
        memcpy(rows + i * run, c->rows + i * apart * c->width, run);
    s.rows = rows;
    int good = rows && scores && indices && rank_rows(&s, values, wanted, scores, indices);
    for (size_t i = 0; good && i < count; i++) floors[i] = scores[(i + 1) * wanted - 1];
    free(rows);
    free(scores);
    free(indices);
    return good;
}

static int rank_group(const Call *c, const double *values, size_t count, size_t k,
                      const double *floors, double *scores, int64_t *indices) {
    Ranking *rankings = calloc(count, sizeof *rankings);
    double *sums = malloc(count * 32 * c->width * sizeof *sums);
    uint8_t *losses = calloc(count, 32 * c->width);
    Scored *heaps = malloc(count * k * sizeof *heaps);
    int good = rankings && sums && losses && heaps;
    for (size_t i = 0; good && i < count; i++) {
        Ranking *r = &rankings[i];
        *r = (Ranking){.width = c->width, .k = k, .values = values + i * 8 * c->width,
                       .sums = sums + i * 32 * c->width, .losses = losses + i * 32 * c->width,
                       .heap = heaps + i * k};
        start_ranking(r);
        clear_ranking(r, floors[i]);
    }
    good = good && rank_all(c, rankings, count);
    for (size_t i = 0; good && i < count; i++) {
        Ranking *r = &rankings[i];
        if (r->used < k) { /* the guess was too high */
            clear_ranking(r, -INFINITY);
            good = rank_all(c, r, 1);
        }
        write_ranking(r, scores + i * k, indices + i * k);
    }
    free(rankings);
    free(sums);
    free(losses);
    free(heaps);
    return good;
}

/* The k rows of the highest scores for each query. 0: out of memory. */
static int rank_rows(const Call *c, const double *values, size_t k, double *scores,
                     int64_t *indices) {
    double *floors = malloc((c->count + 1) * sizeof *floors);
    int good = floors && guess_floors(c, values, k, floors);
    for (size_t from = 0; good && from < c->count; from += GROUP) {
        size_t count = c->count - from < GROUP ? c->count - from : GROUP;
        good = rank_group(c, values + from * 8 * c->width, count, k, floors + from,
                          scores + from * k, indices + from * k);
    }
    free(floors);
    return good;
}

/* The score of each of n rows for each query; `step` bytes lie between the rows of two queries. */
static int score_rows(const Call *c, const double *values, size_t n, size_t step, double *scores) {
    double *sums = malloc(32 * c->width * sizeof *sums);
    for (size_t i = 0; sums && i < c->count; i++, scores += n) {
        const uint8_t *rows = c->rows + i * step;
        fill_sums(sums, values + i * 8 * c->width, c->width);
        for (size_t j = 0; j < n; j++) scores[j] = score_of(sums, rows + j * c->width, c->width);
    }
    free(sums);
    return sums != NULL;
}
