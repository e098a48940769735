/* Overlaps and unions of neighbour lists (paper, Algorithm 1), and the module of all
 * inner loops of ddh.neighbours. The loops work on plain buffers whose sizes and indices are
 * checked, and release the GIL, so that Python threads can share the rows.
 *
 * The members of a list lie anywhere in memory, and fetching their counters costs more than
 * counting. So the images are renumbered before the work, neighbours close together, and get
 * their own indices back at the end: a third of the time at a million images. */

#include "_lists.h"
#include "_candidates.h"
#include "_dots.h"

#define GROUP 512

/* ---- renumbering ---------------------------------------------------------------------------- */

/* Breadth first through the lists, in groups of GROUP images, each from the next one left:
 * number[i] is the new number of image i, image[n] the image that has the number n. */
static void
number_images(const Lists *l, int32_t *image, int32_t *number)
{
    int32_t end = 0;
    for (Py_ssize_t i = 0; i < l->rows; i++) number[i] = -1;
    for (Py_ssize_t seed = 0; seed < l->rows; seed++) {
        if (number[seed] >= 0) continue;
        int32_t head = end, full = end + GROUP;
        image[end] = (int32_t)seed;
        number[seed] = end++;
        for (; head < end && end < full; head++)
            for (int64_t n = l->starts[image[head]]; n < l->starts[image[head] + 1]; n++) {
                int32_t j = l->items[n];
                if (number[j] >= 0) continue;
                image[end] = j;
                number[j] = end++;
            }
    }
}

static void
renumber_lists(const Lists *l, const int32_t *image, const int32_t *number, int32_t *spare,
               int64_t *starts, int32_t *items)
{
    int64_t end = 0;
    for (Py_ssize_t r = 0; r < l->rows; r++) {
        starts[r] = end;
        for (int64_t n = l->starts[image[r]]; n < l->starts[image[r] + 1]; n++)
            items[end++] = number[l->items[n]];
        sort(items + starts[r], end - starts[r], spare);
    }
    starts[l->rows] = end;
}

PyDoc_STRVAR(renumber_doc,
"renumber(starts, items, image, new_starts, new_items)\n\n"
"Number the images so that the members of a list are close; image[n] (int32) becomes the image\n"
"with the number n, and the new lists are those of the images in that order.");

static PyObject *
renumber(PyObject *self, PyObject *args)
{
    Py_buffer b[5];
    Lists lists;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*w*w*w*", &b[0], &b[1], &b[2], &b[3], &b[4]))
        return NULL;
    Py_ssize_t images = b[0].len / (Py_ssize_t)sizeof(int64_t) - 1;
    if (open_lists(&lists, &b[0], &b[1], images, "lists") == 0 &&
        !too_small(&b[2], images, 4, "image") && !too_small(&b[3], images + 1, 8, "new_starts") &&
        !too_small(&b[4], lists.starts[images], 4, "new_items")) {
        int32_t *number = malloc((images + longest_row(&lists) + 1) * sizeof(int32_t));
        if (number) {
            Py_BEGIN_ALLOW_THREADS
            number_images(&lists, b[2].buf, number);
            renumber_lists(&lists, b[2].buf, number, number + images, b[3].buf, b[4].buf);
            Py_END_ALLOW_THREADS
            result = Py_NewRef(Py_None);
        } else
            PyErr_NoMemory();
        free(number);
    }
    for (int n = 0; n < 5; n++) PyBuffer_Release(&b[n]);
    return result;
}

/* ---- overlaps ------------------------------------------------------------------------------- */

typedef struct {
    Lists lists, holders;       /* A and its transpose: the rows that hold an image */
    const int32_t *image;       /* ties go to the smaller of these; NULL: ties are left open */
    Py_ssize_t k2, min_overlap;
    uint16_t *overlap;          /* per image, zero between rows */
    int32_t *seen;              /* the images whose overlap is not zero */
    Py_ssize_t *histogram;      /* how many images have an overlap of c */
    IntVector chosen, tied;
} Search;

/* Row i of A A^T: num_j = |L_i n L_j| (Alg. 1) for every j where it is not zero. */
static Py_ssize_t
count_overlaps(Search *s, Py_ssize_t i)
{
    Py_ssize_t seen = 0;
    for (int64_t n = s->lists.starts[i]; n < s->lists.starts[i + 1]; n++) {
        int32_t member = s->lists.items[n];
        for (int64_t h = s->holders.starts[member]; h < s->holders.starts[member + 1]; h++) {
            int32_t j = s->holders.items[h];
            s->seen[seen] = j;
            seen += s->overlap[j]++ == 0;
        }
    }
    return seen;
}

/* Hold `places` of the images offered, those with the smallest index. */
static void
keep_smallest(int32_t *held, Py_ssize_t *count, Py_ssize_t places, int32_t j,
              const int32_t *image)
{
    Py_ssize_t at = *count < places ? (*count)++ : places;
    if (at == places && image[j] > image[held[--at]])
        return;
    for (; at > 0 && image[held[at - 1]] > image[j]; at--) held[at] = held[at - 1];
    held[at] = j;
}

/* The top K2 of row i: what is certain goes to `chosen`; of what ties for the last places the
 * smallest goes there too, or all of it to `tied`. */
static int
choose(Search *s, Py_ssize_t i, Py_ssize_t seen)
{
    Py_ssize_t cut = s->lists.starts[i + 1] - s->lists.starts[i], places = s->k2, held = 0;
    memset(s->histogram, 0, (cut + 1) * sizeof(Py_ssize_t));
    for (Py_ssize_t n = 0; n < seen; n++) s->histogram[s->overlap[s->seen[n]]]++;
    while (cut >= s->min_overlap && s->histogram[cut] <= places) places -= s->histogram[cut--];
    if (reserve(&s->chosen, s->k2 < seen ? s->k2 : seen) < 0 || reserve(&s->tied, seen) < 0)
        return -1;
    int32_t *chosen = s->chosen.items + s->chosen.length;
    int32_t *last = chosen + (s->k2 - places);
    /* at this overlap there are more rows than places */
    Py_ssize_t divided = cut >= s->min_overlap && places > 0 ? cut : -1;
    for (Py_ssize_t n = 0; n < seen; n++) {
        int32_t j = s->seen[n];
        Py_ssize_t overlap = s->overlap[j];
        s->overlap[j] = 0;
        if (overlap > cut) *chosen++ = j;
        else if (overlap != divided) continue;
        else if (s->image) keep_smallest(last, &held, places, j, s->image);
        else s->tied.items[s->tied.length++] = j;
    }
    s->chosen.length = chosen + held - s->chosen.items;
    return 0;
}

static int
search_rows(Search *s, Py_ssize_t start, Py_ssize_t stop, int64_t *chosen_ends,
            int64_t *tied_ends)
{
    for (Py_ssize_t i = start; i < stop; i++) {
        if (choose(s, i, count_overlaps(s, i)) < 0)
            return -1;
        chosen_ends[i - start] = s->chosen.length;
        tied_ends[i - start] = s->tied.length;
    }
    return 0;
}

PyDoc_STRVAR(top_overlaps_doc,
"top_overlaps(starts, items, holder_starts, holders, image, start, stop, k2, min_overlap,\n"
"             chosen_ends, tied_ends) -> (chosen, tied)\n\n"
"The K2 rows with the largest overlap (`min_overlap` or more) for the rows start..stop, as\n"
"int32 bytes, one run per row; the ends are written. Ties for the last places go to the\n"
"smallest `image` or, where that is empty, stay open in `tied`.");

static PyObject *
top_overlaps(PyObject *self, PyObject *args)
{
    Py_buffer b[7];
    Py_ssize_t start, stop;
    Search s = {0};
    PyObject *result = NULL;
    int failed;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*nnnnw*w*", &b[0], &b[1], &b[2], &b[3], &b[4], &start,
                          &stop, &s.k2, &s.min_overlap, &b[5], &b[6]))
        return NULL;
    Py_ssize_t images = b[0].len / (Py_ssize_t)sizeof(int64_t) - 1;
    if (open_lists(&s.lists, &b[0], &b[1], images, "lists") < 0 ||
        open_lists(&s.holders, &b[2], &b[3], images, "holders") < 0 ||
        (b[4].len && too_small(&b[4], images, 4, "image")))
        goto done;
    /* a holder named once counts at most once per member, so no overlap exceeds its list */
    if (s.holders.rows != images || !is_ascending(&s.holders) || start < 0 || stop < start ||
        stop > images || s.k2 < 1 || s.k2 > images || s.min_overlap < 1 ||
        longest_row(&s.lists) > UINT16_MAX) {
        PyErr_SetString(PyExc_ValueError, "rows, lengths, K2 or the minimum overlap out of range");
        goto done;
    }
    if (too_small(&b[5], stop - start, 8, "chosen_ends") ||
        too_small(&b[6], stop - start, 8, "tied_ends"))
        goto done;
    s.image = b[4].len ? b[4].buf : NULL;
    s.overlap = calloc(images + 1, sizeof(uint16_t));
    s.seen = malloc((images + 1) * sizeof(int32_t));
    s.histogram = malloc((longest_row(&s.lists) + 1) * sizeof(Py_ssize_t));
    failed = !s.overlap || !s.seen || !s.histogram;
    if (!failed) {
        Py_BEGIN_ALLOW_THREADS
        failed = search_rows(&s, start, stop, b[5].buf, b[6].buf) < 0;
        Py_END_ALLOW_THREADS
    }
    result = failed ? PyErr_NoMemory()
                    : Py_BuildValue("NN", as_bytes(&s.chosen), as_bytes(&s.tied));
done:
    free(s.overlap);
    free(s.seen);
    free(s.histogram);
    free(s.chosen.items);
    free(s.tied.items);
    for (int n = 0; n < 7; n++) PyBuffer_Release(&b[n]);
    return result;
}

/* ---- unions --------------------------------------------------------------------------------- */

/* Write j, and say 1 if it had no such stamp yet; 0 lets the next one take its place. */
static inline int
stamped(int32_t *out, int32_t j, int32_t *stamp, int32_t mark)
{
    int fresh = stamp[j] != mark;
    *out = j;
    stamp[j] = mark;
    return fresh;
}

/* For every row of `chosen` the union of the lists it names; stamp[j] is the last row with j. */
static int
union_rows(const Lists *chosen, const Lists *lists, int32_t *stamp, IntVector *all, int64_t *ends)
{
    for (int32_t r = 0; r < chosen->rows; r++) {
        for (int64_t n = chosen->starts[r]; n < chosen->starts[r + 1]; n++) {
            int32_t k = chosen->items[n];
            if (reserve(all, lists->starts[k + 1] - lists->starts[k] + 1) < 0)
                return -1;
            for (int64_t m = lists->starts[k]; m < lists->starts[k + 1]; m++)
                all->length += stamped(all->items + all->length, lists->items[m], stamp, r + 1);
        }
        ends[r] = all->length;
    }
    return 0;
}

PyDoc_STRVAR(union_doc,
"union(chosen_starts, chosen, starts, items, ends) -> bytes\n\n"
"For every row of `chosen` the union of the lists it names (int32); the ends are written.");

static PyObject *
union_of_lists(PyObject *self, PyObject *args)
{
    Py_buffer b[5];
    Lists chosen, lists;
    IntVector all = {0};
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*y*y*w*", &b[0], &b[1], &b[2], &b[3], &b[4]))
        return NULL;
    Py_ssize_t images = b[2].len / (Py_ssize_t)sizeof(int64_t) - 1;
    if (open_lists(&lists, &b[2], &b[3], images, "lists") == 0 &&
        open_lists(&chosen, &b[0], &b[1], images, "chosen") == 0 &&
        !too_small(&b[4], chosen.rows, 8, "ends")) {
        int32_t *stamp = calloc(images + 1, sizeof(int32_t));
        int failed = !stamp;
        if (!failed) {
            Py_BEGIN_ALLOW_THREADS
            failed = union_rows(&chosen, &lists, stamp, &all, b[4].buf) < 0;
            Py_END_ALLOW_THREADS
        }
        free(stamp);
        result = failed ? PyErr_NoMemory() : as_bytes(&all);
    }
    free(all.items);
    for (int n = 0; n < 5; n++) PyBuffer_Release(&b[n]);
    return result;
}

/* ---- S = S or S^T --------------------------------------------------------------------------- */

/* Row image[r] of the result: row r of `there` and of `back`, without r, under the indices of the
 * images. Without `items` only the lengths are written, otherwise the rows, sorted. Returns -1
 * where a row has another length than the starts say. */
static int
symmetrize_rows(const Lists *there, const Lists *back, const int32_t *image, Py_ssize_t start,
                Py_ssize_t stop, int32_t *stamp, int32_t *row, int64_t *lengths,
                const int64_t *starts, int32_t *items)
{
    for (Py_ssize_t r = start; r < stop; r++) {
        int32_t mark = (int32_t)(r + 1), *end = row;
        stamp[r] = mark;
        for (int64_t n = there->starts[r]; n < there->starts[r + 1]; n++)
            end += stamped(end, there->items[n], stamp, mark);
        for (int64_t n = back->starts[r]; n < back->starts[r + 1]; n++)
            end += stamped(end, back->items[n], stamp, mark);
        if (!items) {
            lengths[image[r]] = end - row;
            continue;
        }
        if (starts[image[r] + 1] - starts[image[r]] != end - row)
            return -1;
        for (int32_t *n = row; n < end; n++) *n = image[*n];
        sort(row, end - row, end);
        memcpy(items + starts[image[r]], row, (end - row) * sizeof(int32_t));
    }
    return 0;
}

PyDoc_STRVAR(symmetrize_doc,
"symmetrize(starts, items, back_starts, back_items, image, start, stop, lengths, out_starts, out)\n\n"
"S or S^T without its diagonal for the rows start..stop of lists, given their transpose, under\n"
"the indices of the images. With an empty `out` only `lengths` are written, otherwise sorted\n"
"rows, each at its place in `out`.");

static PyObject *
symmetrize(PyObject *self, PyObject *args)
{
    Py_buffer b[8];
    Lists there, back;
    Py_ssize_t start, stop;
    PyObject *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*nnw*y*w*", &b[0], &b[1], &b[2], &b[3], &b[4], &start,
                          &stop, &b[5], &b[6], &b[7]))
        return NULL;
    Py_ssize_t images = b[0].len / (Py_ssize_t)sizeof(int64_t) - 1;
    const int64_t *starts = b[6].buf;
    Py_ssize_t room = b[7].len / (Py_ssize_t)sizeof(int32_t);
    int32_t *stamp = NULL, *row = NULL;
    int failed = 0;
    if (open_lists(&there, &b[0], &b[1], images, "lists") < 0 ||
        open_lists(&back, &b[2], &b[3], images, "back") < 0 ||
        too_small(&b[4], images, 4, "image") || too_small(&b[5], images, 8, "lengths") ||
        too_small(&b[6], images + 1, 8, "out_starts"))
        goto done;
    for (Py_ssize_t r = 0; room && r <= images; r++)
        failed |= starts[r] < 0 || starts[r] > room || (r && starts[r] < starts[r - 1]);
    if (failed || start < 0 || stop > images || back.rows != images ||
        outside(b[4].buf, images, images)) {
        PyErr_SetString(PyExc_ValueError, "rows, images or starts out of range");
        goto done;
    }
    stamp = calloc(images + 1, sizeof(int32_t));
    row = malloc(2 * (longest_row(&there) + longest_row(&back) + 1) * sizeof(int32_t));
    if (!stamp || !row) {
        PyErr_NoMemory();
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    failed = symmetrize_rows(&there, &back, b[4].buf, start, stop, stamp, row, b[5].buf, starts,
                             room ? b[7].buf : NULL);
    Py_END_ALLOW_THREADS
    if (failed)
        PyErr_SetString(PyExc_ValueError, "a row has another length than out_starts say");
    else
        result = Py_NewRef(Py_None);
done:
    free(stamp);
    free(row);
    for (int n = 0; n < 8; n++) PyBuffer_Release(&b[n]);
    return result;
}

static PyMethodDef methods[] = {
    {"collect", collect, METH_VARARGS, collect_doc},
    {"dots", dots, METH_VARARGS, dots_doc},
    {"renumber", renumber, METH_VARARGS, renumber_doc},
    {"top_overlaps", top_overlaps, METH_VARARGS, top_overlaps_doc},
    {"union", union_of_lists, METH_VARARGS, union_doc},
    {"symmetrize", symmetrize, METH_VARARGS, symmetrize_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ddh.neighbours._overlap",
    .m_doc = "The inner loops of ddh.neighbours.",
    .m_size = 0,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__overlap(void)
{
    return PyModuleDef_Init(&module);
}
