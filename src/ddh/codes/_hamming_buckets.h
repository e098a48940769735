/* Searches that leave most rows out: in buckets of substrings, exact, and in lists around centres,
   approximate. See _hamming.c. */

#define BATCH 32     /* buckets whose rows the memory fetches together */
#define GUESSED_K 64 /* for fewer rows, what the first buckets hold tells as much */

/* Rows by their keys, equal keys by index: a counting sort. offsets has one entry more than there
   are buckets; `sorted` is filled with the rows, padded, unless it is NULL. 0: a key is too large. */
static int sort_into_buckets(const uint32_t *keys, size_t n, size_t buckets, uint32_t *offsets,
                             uint32_t *ids, const uint8_t *rows, uint8_t *sorted, size_t width) {
    size_t padded = padded_width(width);
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
        if (sorted) pad(sorted + at * padded, padded, rows + i * width, width, 1);
    }
    return 1;
}

/* ------------------------------------------------------------------ lists */

/* Lists of rows, and for each query those it looks through. */
typedef struct {
    const int64_t *offsets; /* list i is rows offsets[i]..offsets[i + 1] */
    size_t count;
    const uint32_t *ids; /* of the rows */
    const uint32_t *probes;
    size_t probe_count; /* of each query */
} Lists;

/* One list after the other, each for all queries that look through it, while it is in the cache.
   0: out of memory. */
static int scan_lists(Call *c, const Lists *lists) {
    size_t probes = c->count * lists->probe_count, padded = padded_width(c->width);
    RowsFunction scan = c->variant->rows[width_class(c->width)];
    uint32_t *starts = calloc(lists->count + 1, sizeof *starts), *queries = malloc(probes * 4 + 4);
    int done = starts && queries &&
               sort_into_buckets(lists->probes, probes, lists->count, starts, queries, NULL, NULL, 1);
    for (size_t list = 0; done && list < lists->count; list++) {
        size_t end = (size_t)lists->offsets[list + 1], tile = TILE_BYTES / padded;
        if (starts[list] == starts[list + 1]) continue;
        for (size_t first = (size_t)lists->offsets[list], n; first < end; first += n) {
            n = end - first < tile ? end - first : tile;
            const uint8_t *rows = tile_at(c, first, n);
            size_t before = c->padded_rows ? 0 : first;
            for (size_t i = starts[list]; i < starts[list + 1]; i++) {
                size_t query = queries[i] / lists->probe_count;
                c->answers[query].ids = lists->ids;
                scan(call_queries(c) + query * padded, rows, n, padded, first, before,
                     &c->answers[query]);
            }
        }
    }
    free(starts);
    free(queries);
    return done;
}

/* ------------------------------------------------------------------ buckets */

static void visit_bucket(const Variant *variant, const Probe *p, size_t from, size_t to,
                         Answer *answer) {
    const Buckets *table = &p->tables[p->table];
    answer->ids = table->ids;
    if (p->table_count == 1) { /* the bucket tells how far its rows are */
        answer->probe = NULL;
        for (size_t i = from; i < to && p->step < answer->accept; i++) keep(answer, p->step, i);
        return;
    }
    answer->probe = p;
    for (size_t i = from; !table->rows && i < to; i++)
        if (table->ids[i] >= p->rows) {
            fail(answer, NO_TABLE);
            return;
        }
    if (table->rows)
        variant->rows[width_class(p->width)](p->query, table->rows + from * p->width, to - from,
                                             p->width, from, from, answer);
    else
        variant->look_up(p, from, to, answer);
}

/* The next number of as many ones; `end` or more where there is none. */
static uint64_t next_mask(uint64_t mask, uint64_t end) {
    if (!mask) return end;
    uint64_t ripple = mask + (mask & (0 - mask));
    return ripple | (mask ^ ripple) >> (2 + trailing_zeros(mask));
}

/* Start to read a bucket; from its fifth line on the processor sees where it is going. */
static void fetch(const uint8_t *rows, size_t bytes) {
    for (size_t at = 0; at < bytes && at < 256; at += 64) PREFETCH(rows + at);
}

/* All buckets whose substring differs from the query's in exactly `step` bits: how many rows they
   hold. The batches let the memory fetch the first rows of later buckets while earlier ones are
   looked through. */
static size_t probe_step(const Variant *variant, const Probe *p, uint32_t key, Answer *answer) {
    const Buckets *table = &p->tables[p->table];
    uint64_t end = (uint64_t)1 << table->bits, mask = ((uint64_t)1 << p->step) - 1;
    size_t from[BATCH], to[BATCH], rows = 0;
    while (mask < end) {
        int n = 0;
        for (; mask < end && n < BATCH; mask = next_mask(mask, end), n++) {
            const uint32_t *offset = table->offsets + (key ^ (uint32_t)mask);
            from[n] = offset[0];
            to[n] = offset[1];
            if (from[n] > to[n] || to[n] > p->rows) {
                fail(answer, NO_TABLE);
                return 0;
            }
            rows += to[n] - from[n];
            if (table->rows) fetch(table->rows + from[n] * p->width, (to[n] - from[n]) * p->width);
        }
        for (int i = 0; i < n; i++)
            if (from[i] < to[i]) visit_bucket(variant, p, from[i], to[i], answer);
    }
    return rows;
}

static double choose(int n, uint32_t r) {
    double ways = 1;
    for (uint32_t i = 0; i < r; i++) ways = ways * (n - (int)i) / (i + 1);
    return ways;
}

/* How to search in buckets. */
typedef struct {
    uint32_t radius;              /* of the rows that are wanted, where there is no k */
    double row_cost, bucket_cost; /* in units of one row's share of a scan */
} Plan;

/* One query against the buckets; 0 when the scan is the cheaper way. */
static int search_buckets(const Variant *variant, Probe *p, const uint32_t *keys, size_t n,
                          const Plan *plan, Answer *answer) {
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
            spent += plan->bucket_cost * buckets;
            if (spent + plan->row_cost * share * (double)n > (double)n) return 0;
            spent += plan->row_cost * (double)probe_step(variant, p, keys[t], answer);
            if (answer->failed) return 0;
            size_t reached = p->table_count * step + t; /* all rows this near have been found */
            if (answer->counts ? answer->below >= answer->k && answer->limit <= reached + 1
                               : plan->radius <= reached)
                return 1;
            if (spent > (double)n) return 0;
        }
        if (!any) return !answer->counts || answer->below >= answer->k; /* a guess may be too low */
    }
}
