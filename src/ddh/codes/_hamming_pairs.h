/* Pairs of rows within a radius among rows that share some parts of their bits: see substrings.py
   for why that finds all of them. */

typedef struct {
    const uint8_t *rows; /* by bucket, padded to a width that has its own loop */
    const uint32_t *ids; /* of the rows */
    size_t n, width;
    const uint32_t *offsets; /* of the buckets, one more than there are */
    size_t buckets;
    const uint8_t *masks; /* the bits of each part */
    size_t parts, shared;
    uint64_t table; /* the parts that rows of a bucket share, and that this table answers for */
    uint32_t radius;
} PairTable;

typedef struct {
    uint64_t *pairs; /* smaller id << 32 | larger id */
    int32_t *distances;
    size_t used, capacity;
} FoundPairs;

static int room_for_pair(FoundPairs *found) {
    if (found->used < found->capacity) return 1;
    size_t capacity = found->capacity ? 2 * found->capacity : 1024;
    uint64_t *pairs = realloc(found->pairs, capacity * sizeof *pairs);
    if (pairs) found->pairs = pairs;
    int32_t *distances = pairs ? realloc(found->distances, capacity * sizeof *distances) : NULL;
    if (!distances) return 0;
    found->distances = distances;
    found->capacity = capacity;
    return 1;
}

/* The first `shared` parts in which two rows agree: a pair is reported for these alone. */
static uint64_t shared_parts(const PairTable *t, const uint8_t *a, const uint8_t *b) {
    uint64_t equal = 0;
    for (size_t part = 0, count = 0; part < t->parts && count < t->shared; part++)
        if (!masked_distance(a, b, t->masks + part * t->width, t->width)) {
            equal |= (uint64_t)1 << part;
            count++;
        }
    return equal;
}

static int report_pairs(const PairTable *t, size_t row, Answer *near, FoundPairs *found) {
    for (size_t i = 0; i < near->used; i++) {
        size_t other = (uint32_t)near->kept[i];
        if (shared_parts(t, t->rows + row * t->width, t->rows + other * t->width) != t->table)
            continue;
        if (!room_for_pair(found)) return 0;
        uint64_t a = t->ids[row], b = t->ids[other];
        found->pairs[found->used] = a < b ? a << 32 | b : b << 32 | a;
        found->distances[found->used++] = (int32_t)(near->kept[i] >> 32);
    }
    near->used = 0;
    return 1;
}

/* Pairs whose first row, in the order of the buckets, is one of from..to. NO_MEMORY, NO_TABLE, 0. */
static int scan_bucket_pairs(const Variant *variant, const PairTable *t, size_t from, size_t to,
                             FoundPairs *found) {
    RowsFunction scan = variant->rows[width_class(t->width)];
    size_t tile = TILE_BYTES / t->width, low = 0, high = t->buckets;
    Answer near = {.accept = t->radius + 1, .limit = t->radius + 1, .in_order = 1};
    int failed = 0;
    while (high - low > 1) { /* the bucket of the first row */
        size_t middle = (low + high) / 2;
        *(t->offsets[middle] <= from ? &low : &high) = middle;
    }
    for (size_t bucket = low; bucket < t->buckets && !failed; bucket++) {
        size_t begin = t->offsets[bucket], end = t->offsets[bucket + 1];
        if (begin > end || end > t->n) failed = NO_TABLE;
        if (begin >= to) break;
        size_t first = begin < from ? from : begin, last = end < to ? end : to;
        if (end - begin < 2 || failed) continue;
        for (size_t start = first, stop; start < end && !failed; start = stop) {
            stop = end - start < tile ? end : start + tile;
            for (size_t row = first; row < last && row < stop && !failed; row++) {
                size_t next = row + 1 < start ? start : row + 1;
                if (next >= stop) continue;
                scan(t->rows + row * t->width, t->rows + next * t->width, stop - next, t->width,
                     next, next, &near);
                if (near.failed || !report_pairs(t, row, &near, found)) failed = NO_MEMORY;
            }
        }
    }
    free(near.kept);
    return failed;
}
