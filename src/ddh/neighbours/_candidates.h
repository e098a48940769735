/* Exact neighbours: per row, the candidates for its k nearest while tiles of cosines go by. */

#include "_lists.h"
#include <math.h>

#define CHUNK 16

typedef struct {
    Py_ssize_t k, capacity;
    float slack;        /* twice the rounding error of the product */
    float *threshold;   /* per row: below it nothing can belong to the list any more */
    int32_t *count;     /* per row: candidates held, or -1: more than fit */
    float *value;       /* rows x capacity */
    int32_t *column;    /* rows x capacity */
    float *scratch;     /* capacity */
} Candidates;

/* The k-th largest of n values, which are reordered. */
static float
kth_largest(float *v, Py_ssize_t n, Py_ssize_t k)
{
    Py_ssize_t low = 0, high = n - 1, want = k - 1;
    while (low < high) {
        float pivot = v[low + (high - low) / 2];
        Py_ssize_t i = low, j = high;
        while (i <= j) {
            while (v[i] > pivot) i++;
            while (v[j] < pivot) j--;
            if (i <= j) {
                float t = v[i];
                v[i++] = v[j];
                v[j--] = t;
            }
        }
        if (want <= j) high = j;
        else if (want >= i) low = i;
        else break;
    }
    return v[want];
}

/* Raise a row's threshold to its k-th value less the slack and drop what lies below. */
static void
tighten(Candidates *c, Py_ssize_t row)
{
    Py_ssize_t held = c->count[row], kept = 0;
    float *value = c->value + row * c->capacity;
    int32_t *column = c->column + row * c->capacity;
    if (held < c->k)
        return;
    memcpy(c->scratch, value, held * sizeof(float));
    float threshold = kth_largest(c->scratch, held, c->k) - c->slack;
    for (Py_ssize_t n = 0; n < held; n++) {
        if (value[n] >= threshold) {
            value[kept] = value[n];
            column[kept++] = column[n];
        }
    }
    c->threshold[row] = threshold;
    c->count[row] = (int32_t)kept;
}

static void
offer(Candidates *c, Py_ssize_t row, float value, Py_ssize_t column)
{
    if (c->count[row] == c->capacity) {
        tighten(c, row);
        if (c->count[row] > c->capacity - c->capacity / 4) {
            c->count[row] = -1;
            c->threshold[row] = INFINITY;
        }
        if (value < c->threshold[row])
            return;
    }
    if (c->count[row] < 0)
        return;
    Py_ssize_t at = row * c->capacity + c->count[row]++;
    c->value[at] = value;
    c->column[at] = (int32_t)column;
}

/* A tile holds the similarities of images first_row.. (down) and first_column.. (across). */
typedef struct {
    const float *similarity;
    Py_ssize_t rows, columns, first_row, first_column;
} Tile;

/* Offer the tile to its rows start..stop or, without `by_row`, to its columns start..stop. Called
 * with a constant `by_row`, so that there are two loops, each with a vector comparison. */
static inline void
scan(Candidates *c, const Tile *t, Py_ssize_t start, Py_ssize_t stop, const int by_row)
{
    Py_ssize_t first = by_row ? 0 : start, last = by_row ? t->columns : stop;
    for (Py_ssize_t r = by_row ? start : 0; r < (by_row ? stop : t->rows); r++) {
        const float *s = t->similarity + r * t->columns;
        Py_ssize_t row = t->first_row + r, itself = row - t->first_column;
        const float *columns = c->threshold + t->first_column;
        for (Py_ssize_t x = first; x < last; x += CHUNK) {
            Py_ssize_t end = x + CHUNK <= last ? x + CHUNK : last;
            if (end == x + CHUNK) {
                float threshold = c->threshold[row];
                int any = 0;
                for (int lane = 0; lane < CHUNK; lane++)
                    any |= s[x + lane] >= (by_row ? threshold : columns[x + lane]);
                if (!any) continue;
            }
            for (Py_ssize_t y = x; y < end; y++) {
                if (y == itself || !(s[y] >= (by_row ? c->threshold[row] : columns[y]))) continue;
                if (by_row) offer(c, row, s[y], t->first_column + y);
                else offer(c, t->first_column + y, s[y], row);
            }
        }
    }
}

PyDoc_STRVAR(collect_doc,
"collect(tile, rows, columns, first_row, first_column, start, stop, by_row,\n"
"        k, capacity, slack, threshold, count, value, column)\n\n"
"Offer the similarities of a tile to its rows start..stop or, if `by_row` is false, to its\n"
"columns start..stop.");

static PyObject *
collect(PyObject *self, PyObject *args)
{
    Py_buffer tile, b[4];
    Tile t;
    Candidates c;
    Py_ssize_t start, stop;
    int by_row, bad = 0;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*nnnnnnpnnfw*w*w*w*", &tile, &t.rows, &t.columns, &t.first_row,
                          &t.first_column, &start, &stop, &by_row, &c.k, &c.capacity, &c.slack,
                          &b[0], &b[1], &b[2], &b[3]))
        return NULL;
    Py_ssize_t images = b[0].len / (Py_ssize_t)sizeof(float);
    Py_ssize_t first = by_row ? t.first_row : t.first_column;
    t.similarity = tile.buf;
    c.threshold = b[0].buf;
    c.count = b[1].buf;
    c.value = b[2].buf;
    c.column = b[3].buf;
    if (t.rows < 0 || t.columns < 0 || t.rows > images || t.columns > images || start < 0 ||
        stop > (by_row ? t.rows : t.columns) || t.first_row < 0 || t.first_column < 0 ||
        t.first_row > images - t.rows || t.first_column > images - t.columns || c.k < 1 || c.capacity < 4 ||
        c.k > c.capacity / 2 || c.capacity > PY_SSIZE_T_MAX / (4 * (images + 1))) {
        PyErr_SetString(PyExc_ValueError, "the tile lies outside the images, or 2k do not fit");
        goto done;
    }
    if (too_small(&tile, t.rows * t.columns, 4, "tile") || too_small(&b[1], images, 4, "count") ||
        too_small(&b[2], images * c.capacity, 4, "value") ||
        too_small(&b[3], images * c.capacity, 4, "column"))
        goto done;
    for (Py_ssize_t row = first + start; row < first + stop; row++)
        bad |= c.count[row] < -1 || c.count[row] > c.capacity;
    c.scratch = malloc(c.capacity * sizeof(float));
    if (bad)
        PyErr_SetString(PyExc_ValueError, "a row holds more candidates than fit");
    else if (!c.scratch)
        PyErr_NoMemory();
    else {
        Py_BEGIN_ALLOW_THREADS
        if (by_row) scan(&c, &t, start, stop, 1);
        else scan(&c, &t, start, stop, 0);
        Py_END_ALLOW_THREADS
        result = Py_NewRef(Py_None);
    }
    free(c.scratch);
done:
    PyBuffer_Release(&tile);
    for (int n = 0; n < 4; n++) PyBuffer_Release(&b[n]);
    return result;
}
