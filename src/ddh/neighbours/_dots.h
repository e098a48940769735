/* Dot products of pairs of rows in float64, each summed in the same order. */

#include "_lists.h"

#define LANES 8

/* Eight sums side by side, added up in a fixed order: equal rows give equal results. */
#define DEFINE_DOTS(NAME, TYPE, LOAD)                                                              \
    static void NAME(const void *rows, const float *table, const double *mean, Py_ssize_t d,       \
                     const int32_t *i, const int32_t *j, Py_ssize_t pairs, double *left,           \
                     double *out)                                                                  \
    {                                                                                              \
        const TYPE *x = rows;                                                                      \
        (void)table;                                                                               \
        for (Py_ssize_t p = 0; p < pairs; p++) {                                                   \
            if (p == 0 || i[p] != i[p - 1]) {                                                      \
                const TYPE *a = x + (Py_ssize_t)i[p] * d;                                          \
                for (Py_ssize_t n = 0; n < d; n++) left[n] = LOAD(a[n]) - mean[n];                 \
            }                                                                                      \
            const TYPE *b = x + (Py_ssize_t)j[p] * d;                                              \
            double sum[LANES] = {0};                                                               \
            Py_ssize_t n = 0;                                                                      \
            for (; n + LANES <= d; n += LANES)                                                     \
                for (int lane = 0; lane < LANES; lane++)                                           \
                    sum[lane] += left[n + lane] * (LOAD(b[n + lane]) - mean[n + lane]);            \
            for (int lane = 0; n < d; n++, lane++)                                                 \
                sum[lane] += left[n] * (LOAD(b[n]) - mean[n]);                                     \
            out[p] = ((sum[0] + sum[1]) + (sum[2] + sum[3])) +                                     \
                     ((sum[4] + sum[5]) + (sum[6] + sum[7]));                                      \
        }                                                                                          \
    }

#define AS_DOUBLE(v) ((double)(v))
#define FROM_TABLE(v) ((double)table[v])
DEFINE_DOTS(dots_single, float, AS_DOUBLE)
DEFINE_DOTS(dots_double, double, AS_DOUBLE)
DEFINE_DOTS(dots_half, uint16_t, FROM_TABLE)

PyDoc_STRVAR(dots_doc,
"dots(features, item, dimensions, table, mean, i, j, out)\n\n"
"out[p] = (x_i[p] - mean) . (x_j[p] - mean) in float64 for rows of float16 (item 2, with the\n"
"table of all 65,536 values as float32), float32 (item 4) or float64 (item 8).");

static PyObject *
dots(PyObject *self, PyObject *args)
{
    Py_buffer b[6];  /* features, table, mean, i, j, out */
    Py_ssize_t item, d;
    PyObject *result = NULL;
    double *left = NULL;
    if (!PyArg_ParseTuple(args, "y*nny*y*y*y*w*", &b[0], &item, &d, &b[1], &b[2], &b[3], &b[4],
                          &b[5]))
        return NULL;
    const int32_t *i = b[3].buf, *j = b[4].buf;
    Py_ssize_t pairs = b[3].len / (Py_ssize_t)sizeof(int32_t);
    if (d < 1 || (item != 2 && item != 4 && item != 8)) {
        PyErr_SetString(PyExc_ValueError, "rows are float16, float32 or float64");
        goto done;
    }
    Py_ssize_t images = b[0].len / item / d;
    if (too_small(&b[2], d, 8, "mean") || too_small(&b[4], pairs, 4, "j") ||
        too_small(&b[5], pairs, 8, "out") || (item == 2 && too_small(&b[1], 65536, 4, "table")))
        goto done;
    if (outside(i, pairs, images) || outside(j, pairs, images)) {
        PyErr_SetString(PyExc_IndexError, "a pair lies outside the features");
        goto done;
    }
    if (!(left = malloc(d * sizeof(double)))) {
        PyErr_NoMemory();
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    (item == 2 ? dots_half : item == 4 ? dots_single : dots_double)(
        b[0].buf, b[1].buf, b[2].buf, d, i, j, pairs, left, b[5].buf);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    free(left);
    for (int n = 0; n < 6; n++) PyBuffer_Release(&b[n]);
    return result;
}
