/* Checks of buffers, lists of images in compressed rows, growing vectors, sorting of short lists. */

#ifndef DDH_LISTS_H
#define DDH_LISTS_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000 /* one build for Python 3.11 and later */
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define RUN 64

/* ---- checks of what Python passes ---- */

static int
too_small(const Py_buffer *buffer, Py_ssize_t items, size_t item, const char *name)
{
    if (items >= 0 && (size_t)items <= (size_t)buffer->len / item)
        return 0;
    PyErr_Format(PyExc_ValueError, "buffer '%s' holds %zd bytes, %zd items of %zu are needed",
                 name, buffer->len, items, item);
    return 1;
}

/* Whether one of n indices lies outside 0..images. */
static int
outside(const int32_t *index, Py_ssize_t n, Py_ssize_t images)
{
    int bad = 0;
    for (Py_ssize_t p = 0; p < n; p++)
        bad |= index[p] < 0 || index[p] >= images;
    return bad;
}

/* ---- lists ---- */

/* Lists in compressed rows: row r holds items[starts[r]] .. items[starts[r + 1]]. */
typedef struct {
    const int64_t *starts;
    const int32_t *items;
    Py_ssize_t rows;
} Lists;

static int
open_lists(Lists *l, const Py_buffer *starts, const Py_buffer *items, Py_ssize_t images,
           const char *name)
{
    l->rows = starts->len / (Py_ssize_t)sizeof(int64_t) - 1;
    l->starts = starts->buf;
    l->items = items->buf;
    Py_ssize_t held = items->len / (Py_ssize_t)sizeof(int32_t);
    int bad = l->rows < 0 || l->rows > INT32_MAX || l->starts[0] != 0 || l->starts[l->rows] != held;
    for (Py_ssize_t r = 0; !bad && r < l->rows; r++) bad = l->starts[r] > l->starts[r + 1];
    if (!bad && !outside(l->items, held, images))
        return 0;
    PyErr_Format(PyExc_ValueError, "the lists '%s' are damaged", name);
    return -1;
}

/* Whether every row is strictly ascending: no image twice. */
static int
is_ascending(const Lists *l)
{
    for (Py_ssize_t r = 0; r < l->rows; r++)
        for (int64_t n = l->starts[r] + 1; n < l->starts[r + 1]; n++)
            if (l->items[n - 1] >= l->items[n]) return 0;
    return 1;
}

static Py_ssize_t
longest_row(const Lists *l)
{
    Py_ssize_t longest = 0;
    for (Py_ssize_t r = 0; r < l->rows; r++)
        if (l->starts[r + 1] - l->starts[r] > longest) longest = l->starts[r + 1] - l->starts[r];
    return longest;
}

typedef struct {
    int32_t *items;
    Py_ssize_t length, room;
} IntVector;

static int
reserve(IntVector *g, Py_ssize_t more)
{
    if (g->length + more <= g->room)
        return 0;
    Py_ssize_t room = g->length + more > 2 * g->room ? g->length + more : 2 * g->room;
    int32_t *items = realloc(g->items, room * sizeof(int32_t));
    if (!items)
        return -1;
    g->items = items;
    g->room = room;
    return 0;
}

static PyObject *
as_bytes(const IntVector *g)
{
    return PyBytes_FromStringAndSize((char *)g->items, g->length * sizeof(int32_t));
}

/* Merge two ascending runs without a branch that depends on the data. */
static void
merge(const int32_t *a, const int32_t *a_end, const int32_t *b, const int32_t *b_end, int32_t *out)
{
    while (a < a_end && b < b_end) {
        int32_t x = *a, y = *b;
        *out++ = x < y ? x : y;
        a += x < y;
        b += x >= y;
    }
    memcpy(out, a, (a_end - a) * sizeof(int32_t));
    memcpy(out + (a_end - a), b, (b_end - b) * sizeof(int32_t));
}

/* Sort n different numbers; `spare` has room for as many. A number's place in a short run is
 * how many are smaller, which a vector unit counts faster than any branch can be guessed. */
static void
sort(int32_t *v, Py_ssize_t n, int32_t *spare)
{
    int32_t *from = spare, *to = v;
    for (Py_ssize_t start = 0; start < n; start += RUN) {
        int32_t *run = v + start, *out = spare + start;
        int length = n - start < RUN ? (int)(n - start) : RUN;
        for (int a = 0; a < length; a++) {
            int place = 0;
            for (int b = 0; b < length; b++) place += run[b] < run[a];
            out[place] = run[a];
        }
    }
    for (Py_ssize_t width = RUN; width < n; width *= 2) {
        for (Py_ssize_t start = 0; start < n; start += 2 * width) {
            Py_ssize_t middle = start + width < n ? start + width : n;
            Py_ssize_t end = start + 2 * width < n ? start + 2 * width : n;
            merge(from + start, from + middle, from + middle, from + end, to + start);
        }
        int32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != v) memcpy(v, from, n * sizeof(int32_t));
}

#endif
