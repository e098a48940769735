/* Checks of the buffers that Python passes, shared by all loops. */

#ifndef DDH_BUFFERS_H
#define DDH_BUFFERS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

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

#endif
