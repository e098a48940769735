/* Search over packed codes: the native kernel of ddh.codes. _asymmetric.h says how rows are ranked
   by the real-valued outputs of a query; the rest is Hamming search.

   Four ways to find the rows near a query, all exact:

   rows     XOR and popcount, one query against a tile of rows that stays in the first cache.
   tables   For many queries at once. For each byte position and each of the 256 values of a
            row's byte, a line of the table holds the distance of that byte to the same byte of
            64 or 128 queries, two queries to a byte of the line. A row's distances to all
            those queries are then a few loads and additions, less than XOR and popcount cost.
   planes   Also for many queries, and the faster of the two with logic of three inputs: rows are
            turned into planes of bits, and full adders sum up the distances of 256 or 512 rows at
            once. A query costs the same in any number of them. See _hamming_planes.h.
   buckets  Multi-index hashing (Norouzi, Punjani and Fleet, CVPR 2012): rows are sorted by
            each of m substrings; by the pigeonhole principle a row at distance m * r + t or
            less is within r of the query in one of the substrings 0..t, or within r - 1 in
            one of the others. Codes of 16 bits or less have one table, whose buckets hold
            rows of one code.

   What is found goes into an Answer, which counts rows by distance (distances are small
   integers) and so knows at any time the distance at which a row is too far to enter.

   This file is the door to Python. _hamming_answers.h has the parts that know no instruction
   set, _hamming_isa.h the loops, compiled once for each instruction set (x86: _hamming_x86.h);
   _hamming_scan.h and _hamming_buckets.h put them together. Which instruction set runs is chosen
   by the caller from variants(). */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000 /* one build for Python 3.11 and later */
#include <Python.h>

#include "_hamming_answers.h"
#include "_hamming_scan.h"
#include "_hamming_buckets.h"
#include "_hamming_pairs.h"
#include "_asymmetric.h"

static int check(int condition, const char *message) {
    if (!condition) PyErr_SetString(PyExc_ValueError, message);
    return condition;
}

/* Whether a buffer is an array of this size, which may be more than a number can say. */
static int holds(const Py_buffer *buffer, size_t rows, size_t columns, size_t item) {
    return (!columns || rows <= SIZE_MAX / item / columns) &&
           (size_t)buffer->len == rows * columns * item;
}

static const Variant *variant_named(const char *name) {
    for (int i = 0; i < VARIANT_COUNT; i++)
        if (!strcmp(VARIANTS[i].name, name) && runs_here(&VARIANTS[i])) return &VARIANTS[i];
    PyErr_Format(PyExc_ValueError, "no native variant %s here", name);
    return NULL;
}

static PyObject *py_variants(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    PyObject *names = PyList_New(0);
    for (int i = 0; names && i < VARIANT_COUNT; i++) {
        if (!runs_here(&VARIANTS[i])) continue;
        PyObject *name = PyUnicode_FromString(VARIANTS[i].name);
        if (!name || PyList_Append(names, name) < 0) Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

/* Sorted answers of any length as (counts int64, distances int32, indices int64), in bytes. */
static PyObject *found_in_radius(Call *c) {
    size_t total = 0, most = 0;
    for (size_t i = 0; i < c->count; i++) {
        total += c->answers[i].used;
        if (c->answers[i].used > most) most = c->answers[i].used;
    }
    uint64_t *scratch = malloc((most + 1) * sizeof *scratch);
    PyObject *counts = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(c->count * 8));
    PyObject *distances = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(total * 4));
    PyObject *indices = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(total * 8));
    PyObject *result = NULL;
    if (!scratch) PyErr_NoMemory();
    if (scratch && counts && distances && indices) {
        int64_t *count = (int64_t *)PyBytes_AsString(counts);
        int32_t *distance = (int32_t *)PyBytes_AsString(distances);
        int64_t *index = (int64_t *)PyBytes_AsString(indices);
        Py_BEGIN_ALLOW_THREADS
        for (size_t i = 0; i < c->count; i++) {
            Answer *a = &c->answers[i];
            if (!a->counts) sort_keys(a->kept, scratch, a->used, a->in_order ? 32 : 0);
            count[i] = (int64_t)a->used;
            for (size_t j = 0; j < a->used; j++) {
                *distance++ = (int32_t)(a->kept[j] >> 32);
                *index++ = (int64_t)(uint32_t)a->kept[j];
            }
        }
        Py_END_ALLOW_THREADS
        result = PyTuple_Pack(3, counts, distances, indices);
    }
    free(scratch);
    Py_XDECREF(counts);
    Py_XDECREF(distances);
    Py_XDECREF(indices);
    return result;
}

/* Codes given by the caller: whole rows of `width` bytes, fewer than 2^32 of them. */
static int set_codes(Call *c, Py_buffer *queries, Py_buffer *rows, Py_ssize_t width) {
    if (!check(width >= 1 && width <= MAX_TABLES, "width") ||
        !check(queries->len % width == 0 && rows->len % width == 0, "codes are whole rows") ||
        !check((uint64_t)(rows->len / width) < (uint64_t)UINT32_MAX, "too many rows for one call"))
        return 0;
    c->width = (size_t)width;
    c->queries = queries->buf;
    c->count = (size_t)(queries->len / width);
    c->rows = rows->buf;
    c->n = (size_t)(rows->len / width);
    return 1;
}

PyDoc_STRVAR(top_k_doc,
             "top_k(variant, way, queries, rows, width, k, distances, indices)\n--\n\n"
             "The k nearest rows of each query: way 0 by rows, 1 by tables, 2 by planes; 1 is 2 where\n"
             "there are no tables, and 2 is 0 where there are no planes.");

static PyObject *py_top_k(PyObject *self, PyObject *args) {
    const char *variant;
    int way, good = 0;
    Py_buffer queries, rows, distances, indices;
    Py_ssize_t width, k;
    Call c = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "siy*y*nnw*w*", &variant, &way, &queries, &rows, &width, &k,
                          &distances, &indices))
        return NULL;
    if ((c.variant = variant_named(variant)) && set_codes(&c, &queries, &rows, width) &&
        check(k >= 1 && (size_t)k <= c.n, "k is 1 to the number of rows") &&
        check(holds(&distances, c.count, (size_t)k, 4) && holds(&indices, c.count, (size_t)k, 8),
              "results of another size")) {
        Py_BEGIN_ALLOW_THREADS
        good = scan_for_nearest(&c, way, c.queries, c.count, (size_t)k, distances.buf,
                                indices.buf);
        Py_END_ALLOW_THREADS
        if (!good) PyErr_NoMemory();
    }
    close_call(&c);
    PyBuffer_Release(&queries);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&distances);
    PyBuffer_Release(&indices);
    if (!good) return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(within_doc,
             "within(variant, way, queries, rows, width, radius)\n--\n\n"
             "All rows within a radius: bytes of counts int64, distances int32, indices int64.");

static PyObject *py_within(PyObject *self, PyObject *args) {
    const char *variant;
    int way;
    Py_buffer queries, rows;
    Py_ssize_t width, radius;
    PyObject *result = NULL;
    Call c = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "siy*y*nn", &variant, &way, &queries, &rows, &width, &radius))
        return NULL;
    if ((c.variant = variant_named(variant)) && set_codes(&c, &queries, &rows, width) &&
        check(radius >= 0 && radius < ANY_DISTANCE, "radius")) {
        int good;
        Py_BEGIN_ALLOW_THREADS
        good = open_call(&c, c.count, 0);
        if (good) {
            take_queries(&c, c.queries, c.count, (uint32_t)radius + 1, 1);
            good = scan(&c, way);
        }
        Py_END_ALLOW_THREADS
        result = good ? found_in_radius(&c) : PyErr_NoMemory();
    }
    close_call(&c);
    PyBuffer_Release(&queries);
    PyBuffer_Release(&rows);
    return result;
}

typedef struct {
    size_t count;
    Buckets tables[MAX_TABLES];
    Py_buffer buffers[MAX_TABLES][4];
    size_t held;
} MultiIndex;

static void close_index(MultiIndex *index) {
    for (size_t t = 0; t < index->held; t++)
        for (int i = 0; i < 4; i++) PyBuffer_Release(&index->buffers[t][i]);
    PyMem_Free(index);
}

/* A sequence of (bits, mask, offsets, ids, rows), rows being empty where they are looked up. */
static MultiIndex *open_index(PyObject *tables, size_t n, size_t width) {
    MultiIndex *index = PyMem_Calloc(1, sizeof *index);
    PyObject *sequence = PySequence_Tuple(tables);
    if (!index) PyErr_NoMemory();
    if (!index || !sequence) goto failed;
    index->count = (size_t)PyTuple_Size(sequence);
    if (!check(index->count >= 1 && index->count <= MAX_TABLES, "number of tables")) goto failed;
    for (size_t t = 0; t < index->count; t++) {
        Buckets *table = &index->tables[t];
        Py_buffer *buffer = index->buffers[t];
        if (!PyArg_ParseTuple(PyTuple_GetItem(sequence, (Py_ssize_t)t), "iy*y*y*y*",
                              &table->bits, &buffer[0], &buffer[1], &buffer[2], &buffer[3]))
            goto failed;
        index->held++;
        size_t padded = buffer[3].len ? padded_width(width) : width;
        if (!check(table->bits >= 1 && table->bits <= 31, "bits of a table") ||
            !check((size_t)buffer[0].len == padded, "a mask is as wide as a code") ||
            !check((size_t)buffer[1].len == (((size_t)1 << table->bits) + 1) * 4, "offsets") ||
            !check((size_t)buffer[2].len == n * 4, "a table has every row's id") ||
            !check(!buffer[3].len || (size_t)buffer[3].len == n * padded, "rows of a table") ||
            !check(t == 0 || !buffer[3].len == !index->tables[0].rows, "rows of all or of none"))
            goto failed;
        table->mask = buffer[0].buf;
        table->offsets = buffer[1].buf;
        table->ids = buffer[2].buf;
        table->rows = buffer[3].len ? buffer[3].buf : NULL;
    }
    Py_DECREF(sequence);
    return index;
failed:
    Py_XDECREF(sequence);
    if (index) close_index(index);
    return NULL;
}

static int good_keys(const MultiIndex *index, const uint32_t *keys, size_t queries) {
    for (size_t i = 0; i < queries; i++)
        for (size_t t = 0; t < index->count; t++)
            if (!check(*keys++ >> index->tables[t].bits == 0, "a key of no bucket")) return 0;
    return 1;
}

static void search_index(Call *c, const MultiIndex *index, const uint32_t *keys, const Plan *plan,
                         uint8_t *done) {
    for (size_t i = 0; i < c->count; i++) {
        size_t width = index->tables[0].rows ? padded_width(c->width) : c->width;
        const uint8_t *queries = index->tables[0].rows ? call_queries(c) : c->queries;
        Probe p = {index->tables, index->count, 0, 0, queries + i * width, c->rows, width, c->n};
        done[i] = (uint8_t)search_buckets(c->variant, &p, keys + i * index->count, c->n, plan,
                                          &c->answers[i]);
    }
}

PyDoc_STRVAR(index_search_doc,
             "index_search(variant, queries, rows, width, keys, tables, k, radius, row_cost,\n"
             "             bucket_cost, done)\n--\n\n"
             "The k nearest rows of each query, or with k = 0 all within the radius, by\n"
             "multi-index hashing, as `within` gives them. done[i] is 0 for a query that is\n"
             "better answered by a scan; its answer is worthless.");

static PyObject *py_index_search(PyObject *self, PyObject *args) {
    const char *variant;
    Py_buffer queries, rows, keys, done;
    Py_ssize_t width, k;
    unsigned int radius;
    Plan plan = {0};
    PyObject *tables, *result = NULL;
    MultiIndex *index = NULL;
    Call c = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "sy*y*ny*OnIddw*", &variant, &queries, &rows, &width, &keys,
                          &tables, &k, &radius, &plan.row_cost, &plan.bucket_cost, &done))
        return NULL;
    plan.radius = radius;
    if ((c.variant = variant_named(variant)) && set_codes(&c, &queries, &rows, width) &&
        check(k >= 0 && (size_t)k <= c.n, "k is 0 to the number of rows") &&
        check(radius < ANY_DISTANCE, "radius") && check((size_t)done.len == c.count, "done has one byte a query") &&
        (index = open_index(tables, c.n, c.width)) &&
        check((size_t)keys.len == c.count * index->count * 4, "keys of another size") &&
        good_keys(index, keys.buf, c.count)) {
        int good;
        Py_BEGIN_ALLOW_THREADS
        good = open_call(&c, c.count, (size_t)k);
        if (good) {
            take_queries(&c, c.queries, c.count, k ? above_all(&c) : radius + 1, 0);
            good = k < GUESSED_K || guess_limits(&c, BY_TABLES);
        }
        if (good) {
            search_index(&c, index, keys.buf, &plan, done.buf);
            cut_to_k(&c);
            good = !any_failed(&c);
        }
        Py_END_ALLOW_THREADS
        if (check(good || any_failed(&c) != NO_TABLE, "offsets or ids of other rows"))
            result = good ? found_in_radius(&c) : PyErr_NoMemory();
    }
    if (index) close_index(index);
    close_call(&c);
    PyBuffer_Release(&queries);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&keys);
    PyBuffer_Release(&done);
    return result;
}

static int good_lists(const Call *c, const uint32_t *probes, size_t probed, const int64_t *offsets,
                      size_t lists) {
    for (size_t i = 0; i < probed; i++)
        if (!check(probes[i] < lists, "a probe of no list")) return 0;
    for (size_t i = 0; i < lists; i++)
        if (!check(offsets[i] >= 0 && offsets[i] <= offsets[i + 1], "offsets")) return 0;
    return check((size_t)offsets[lists] == c->n, "the last list ends with the last row");
}

PyDoc_STRVAR(list_search_doc,
             "list_search(variant, queries, rows, width, probes, offsets, ids, k)\n--\n\n"
             "The k nearest among the rows of the lists that are probed for each query (fewer\n"
             "where those hold fewer), as `within` gives them. Rows lie in the order of the\n"
             "lists, list i from offsets[i] to offsets[i + 1]; ids are their indices.");

static PyObject *py_list_search(PyObject *self, PyObject *args) {
    const char *variant;
    Py_buffer queries, rows, probes, offsets, ids;
    Py_ssize_t width, k;
    PyObject *result = NULL;
    Call c = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "sy*y*ny*y*y*n", &variant, &queries, &rows, &width, &probes,
                          &offsets, &ids, &k))
        return NULL;
    size_t lists = (size_t)offsets.len / 8 - 1, probed = (size_t)probes.len / 4;
    if ((c.variant = variant_named(variant)) && set_codes(&c, &queries, &rows, width) &&
        check(k >= 1 && (size_t)k <= c.n, "k is 1 to the number of rows") &&
        check((size_t)ids.len == c.n * 4, "ids of another size") && check(offsets.len >= 16, "no list") &&
        check(c.count && probed % c.count == 0, "as many probes for each query") &&
        good_lists(&c, probes.buf, probed, offsets.buf, lists)) {
        int good;
        Lists all = {offsets.buf, lists, ids.buf, probes.buf, probed / c.count};
        Py_BEGIN_ALLOW_THREADS
        good = open_call(&c, c.count, (size_t)k);
        if (good) {
            take_queries(&c, c.queries, c.count, above_all(&c), 0);
            good = scan_lists(&c, &all) && !any_failed(&c);
            cut_to_k(&c);
        }
        Py_END_ALLOW_THREADS
        if (check(good || any_failed(&c) != NO_TABLE, "a list is probed twice"))
            result = good ? found_in_radius(&c) : PyErr_NoMemory();
    }
    close_call(&c);
    PyBuffer_Release(&queries);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&probes);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&ids);
    return result;
}

PyDoc_STRVAR(matrix_doc, "matrix(variant, a, b, width, distances)\n--\n\nAll distances, uint16.");

static PyObject *py_matrix(PyObject *self, PyObject *args) {
    const char *variant;
    Py_buffer a, b, distances;
    Py_ssize_t width;
    int good = 0;
    Call c = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "sy*y*nw*", &variant, &a, &b, &width, &distances)) return NULL;
    if ((c.variant = variant_named(variant)) && set_codes(&c, &a, &b, width) &&
        check(holds(&distances, c.count, c.n, 2), "results of another size")) {
        uint16_t *out = distances.buf;
        Py_BEGIN_ALLOW_THREADS
        for (size_t i = 0; i < c.count; i++)
            c.variant->distances(c.queries + i * c.width, c.rows, c.n, c.width, out + i * c.n);
        Py_END_ALLOW_THREADS
        good = 1;
    }
    PyBuffer_Release(&a);
    PyBuffer_Release(&b);
    PyBuffer_Release(&distances);
    if (!good) return NULL;
    Py_RETURN_NONE;
}

/* The values of the queries: 8 doubles for each byte of a code. */
static int set_values(Call *c, Py_buffer *values, Py_buffer *rows, Py_ssize_t width) {
    Py_buffer none = {.buf = NULL, .len = 0};
    if (!set_codes(c, &none, rows, width) ||
        !check(values->len % (width * 64) == 0, "values are whole rows of doubles"))
        return 0;
    c->count = (size_t)(values->len / (width * 64));
    const double *value = values->buf;
    for (size_t i = 0; i < c->count; i++) {
        double sum = 0;
        for (size_t bit = 0; bit < 8 * c->width; bit++) sum += fabs(*value++);
        if (!check(isfinite(4 * sum), "the values of a query are not finite")) return 0;
    }
    return 1;
}

PyDoc_STRVAR(rank_doc,
             "rank(variant, values, rows, width, k, scores, indices)\n--\n\n"
             "The k rows of the highest asymmetric scores for each query (doubles, 8 for a byte).");

static PyObject *py_rank(PyObject *self, PyObject *args) {
    const char *variant;
    int good = 0;
    Py_buffer values, rows, scores, indices;
    Py_ssize_t width, k;
    Call c = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "sy*y*nnw*w*", &variant, &values, &rows, &width, &k, &scores,
                          &indices))
        return NULL;
    if ((c.variant = variant_named(variant)) && set_values(&c, &values, &rows, width) &&
        check(k >= 1 && (size_t)k <= c.n, "k is 1 to the number of rows") &&
        check(holds(&scores, c.count, (size_t)k, 8) && holds(&indices, c.count, (size_t)k, 8),
              "results of another size")) {
        Py_BEGIN_ALLOW_THREADS
        good = rank_rows(&c, values.buf, (size_t)k, scores.buf, indices.buf);
        Py_END_ALLOW_THREADS
        if (!good) PyErr_NoMemory();
    }
    PyBuffer_Release(&values);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&scores);
    PyBuffer_Release(&indices);
    if (!good) return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(scores_doc,
             "scores(values, rows, width, each, scores)\n--\n\n"
             "Asymmetric scores of all rows for each query; each: every query has rows of its own.");

static PyObject *py_scores(PyObject *self, PyObject *args) {
    int each, good = 0;
    Py_buffer values, rows, scores;
    Py_ssize_t width;
    Call c = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*npw*", &values, &rows, &width, &each, &scores)) return NULL;
    if (set_values(&c, &values, &rows, width) && check(c.count > 0, "no query") &&
        check(!each || c.n % c.count == 0, "as many rows for each query")) {
        size_t n = each ? c.n / c.count : c.n;
        if (check(holds(&scores, c.count, n, 8), "results of another size")) {
            Py_BEGIN_ALLOW_THREADS
            good = score_rows(&c, values.buf, n, each ? n * c.width : 0, scores.buf);
            Py_END_ALLOW_THREADS
            if (!good) PyErr_NoMemory();
        }
    }
    PyBuffer_Release(&values);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&scores);
    if (!good) return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(sort_doc,
             "sort_into_buckets(keys, offsets, ids, rows, sorted, width)\n--\n\n"
             "Fill offsets (one more than there are buckets) and ids (rows by key, equal keys by\n"
             "index), and `sorted` with the rows in that order unless it is empty.");

static PyObject *py_sort_into_buckets(PyObject *self, PyObject *args) {
    Py_buffer keys, offsets, ids, rows, sorted;
    Py_ssize_t width;
    int good = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*w*w*y*w*n", &keys, &offsets, &ids, &rows, &sorted, &width))
        return NULL;
    size_t n = (size_t)keys.len / 4, buckets = (size_t)offsets.len / 4 - 1;
    if (check(offsets.len >= 8 && (uint64_t)n < (uint64_t)UINT32_MAX, "number of buckets or rows") &&
        check(ids.len == keys.len, "as many ids as keys") &&
        check(width >= 1 && width <= MAX_TABLES && (!sorted.len || ((size_t)rows.len == n * (size_t)width &&
                                             (size_t)sorted.len == n * padded_width((size_t)width))),
              "rows of another size")) {
        Py_BEGIN_ALLOW_THREADS
        good = sort_into_buckets(keys.buf, n, buckets, offsets.buf, ids.buf, rows.buf,
                                 sorted.len ? sorted.buf : NULL, (size_t)width);
        Py_END_ALLOW_THREADS
        check(good, "a key of no bucket");
    }
    PyBuffer_Release(&keys);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&ids);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&sorted);
    if (!good) return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(pairs_doc,
             "bucket_pairs(variant, rows, width, ids, offsets, begin, end, radius, masks, shared,\n"
             "             table)\n--\n\n"
             "Pairs within a radius in one bucket, the first of them among rows begin..end: bytes\n"
             "of `smaller id << 32 | larger id` uint64, and of distances int32. Rows lie as\n"
             "sort_into_buckets puts them. A pair counts if the first `shared` parts (masks) that it\n"
             "agrees in are those of `table`.");

static PyObject *py_bucket_pairs(PyObject *self, PyObject *args) {
    const char *name;
    Py_buffer rows, ids, offsets, masks;
    Py_ssize_t width, begin, end, shared;
    unsigned int radius;
    unsigned long long table;
    const Variant *variant;
    PyObject *pairs, *distances, *result = NULL;
    FoundPairs found = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "sy*ny*y*nnIy*nK", &name, &rows, &width, &ids, &offsets, &begin,
                          &end, &radius, &masks, &shared, &table))
        return NULL;
    if ((variant = variant_named(name)) &&
        check(width >= 1 && width <= MAX_TABLES && padded_width((size_t)width) == (size_t)width,
              "width") &&
        check(rows.len % width == 0 && rows.len / width < (Py_ssize_t)UINT32_MAX, "number of rows") &&
        check(ids.len / 4 == rows.len / width && ids.len % 4 == 0, "as many ids as rows") &&
        check(offsets.len >= 8 && offsets.len % 4 == 0, "number of buckets") &&
        check(begin >= 0 && begin <= end && end <= rows.len / width, "begin and end") &&
        check(masks.len % width == 0 && masks.len / width <= 64, "masks are as wide as a code") &&
        check(shared >= 0 && radius < ANY_DISTANCE, "radius or shared parts")) {
        PairTable t = {rows.buf, ids.buf, (size_t)(rows.len / width), (size_t)width, offsets.buf,
                       (size_t)offsets.len / 4 - 1, masks.buf, (size_t)(masks.len / width),
                       (size_t)shared, table, radius};
        int failed;
        Py_BEGIN_ALLOW_THREADS
        failed = scan_bucket_pairs(variant, &t, (size_t)begin, (size_t)end, &found);
        Py_END_ALLOW_THREADS
        if (failed == NO_MEMORY) PyErr_NoMemory();
        if (check(failed != NO_TABLE, "offsets of other rows") && !failed) {
            pairs = PyBytes_FromStringAndSize((char *)found.pairs, (Py_ssize_t)(found.used * 8));
            distances = PyBytes_FromStringAndSize((char *)found.distances, (Py_ssize_t)(found.used * 4));
            if (pairs && distances) result = PyTuple_Pack(2, pairs, distances);
            Py_XDECREF(pairs);
            Py_XDECREF(distances);
        }
    }
    free(found.pairs);
    free(found.distances);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&ids);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&masks);
    return result;
}

PyDoc_STRVAR(count_doc,
             "count_ones(variant, data, turns)\n--\n\n"
             "Count the ones of data XOR a constant, in blocks of 1,024 bytes, so many times: how fast\n"
             "that goes is the limit of a search that counts bits.");

static PyObject *py_count_ones(PyObject *self, PyObject *args) {
    const char *name;
    const Variant *variant;
    Py_buffer data;
    Py_ssize_t turns;
    uint64_t sum = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "sy*n", &name, &data, &turns)) return NULL;
    if ((variant = variant_named(name))) {
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < turns; i++)
            sum += variant->ones_of_blocks(data.buf, (size_t)data.len / ONES_BLOCK);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    return variant ? PyLong_FromUnsignedLongLong(sum) : NULL;
}

static PyMethodDef METHODS[] = {
    {"variants", py_variants, METH_NOARGS, "Names of the instruction sets that run here, best first."},
    {"top_k", py_top_k, METH_VARARGS, top_k_doc},
    {"within", py_within, METH_VARARGS, within_doc},
    {"index_search", py_index_search, METH_VARARGS, index_search_doc},
    {"sort_into_buckets", py_sort_into_buckets, METH_VARARGS, sort_doc},
    {"list_search", py_list_search, METH_VARARGS, list_search_doc},
    {"bucket_pairs", py_bucket_pairs, METH_VARARGS, pairs_doc},
    {"matrix", py_matrix, METH_VARARGS, matrix_doc},
    {"rank", py_rank, METH_VARARGS, rank_doc},
    {"scores", py_scores, METH_VARARGS, scores_doc},
    {"count_ones", py_count_ones, METH_VARARGS, count_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_hamming", "Search over packed codes.", -1, METHODS,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__hamming(void) { return PyModule_Create(&MODULE); }
