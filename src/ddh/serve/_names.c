/* Rows whose text holds every word: one pass over packed lines. See names.py.

   find(texts, ends, words, anchors, found) -> rows
   texts    bytes of all rows, each ending in a newline, which no word holds
   ends     int64 (n,), behind the newline of each row
   words    list of non-empty bytes; the first one should be the rarest
   anchors  bytes: for each word the position of its rarest byte
   found    int32 (n,), written: rows that hold all words, ascending */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define MAX_WORDS 16

#define ONES 0x0101010101010101ull
#define HIGHS 0x8080808080808080ull

typedef struct {
    const char *bytes;
    Py_ssize_t length, anchor;
} Word;

static inline uint64_t eight(const char *at) {
    uint64_t value;
    memcpy(&value, at, 8);
    return value;
}

static inline int is_word(const char *at, const Word *word) {
    return *at == *word->bytes && !memcmp(at, word->bytes, word->length);
}

/* The first place of a word in [from, to), NULL where there is none. Eight places at a time: those
   where the rare byte and the last one are right have a zero byte in both differences. */
static const char *find_word(const char *from, const char *to, const Word *word) {
    const Py_ssize_t rare = word->anchor, last = word->length - 1;
    const uint64_t rares = ONES * (unsigned char)word->bytes[rare];
    const uint64_t lasts = ONES * (unsigned char)word->bytes[last];
    const char *at = from;
    for (; at + last + 8 <= to; at += 8) {
        uint64_t wrong = (eight(at + rare) ^ rares) | (eight(at + last) ^ lasts);
        if (!((wrong - ONES) & ~wrong & HIGHS)) continue;
        for (int i = 0; i < 8; i++)
            if (is_word(at + i, word)) return at + i;
    }
    for (; at + last < to; at++)
        if (is_word(at, word)) return at;
    return NULL;
}

static Py_ssize_t find_rows(const char *texts, const int64_t *ends, Py_ssize_t n,
                            const Word *words, Py_ssize_t count, int32_t *found) {
    Py_ssize_t rows = 0, row = 0;
    const char *behind = texts + (n ? ends[n - 1] : 0), *at = texts;
    while (at < behind && (at = find_word(at, behind, words)) != NULL) {
        Py_ssize_t high = n - 1, step = 1; /* gallop to the row, which is often near */
        while (row + step < n && ends[row + step - 1] <= at - texts) { row += step; step *= 2; }
        if (row + step - 1 < high) high = row + step - 1;
        while (row < high) {
            Py_ssize_t middle = (row + high) / 2;
            if (ends[middle] <= at - texts) row = middle + 1; else high = middle;
        }
        const char *line = texts + (row ? ends[row - 1] : 0), *end = texts + ends[row];
        Py_ssize_t word = 1;
        while (word < count && find_word(line, end, &words[word])) word++;
        if (word == count) found[rows++] = (int32_t)row;
        at = end;
    }
    return rows;
}

static PyObject *find(PyObject *self, PyObject *args) {
    Py_buffer texts, ends, anchors, found;
    PyObject *list;
    if (!PyArg_ParseTuple(args, "y*y*O!y*w*", &texts, &ends, &PyList_Type, &list, &anchors, &found))
        return NULL;
    Word words[MAX_WORDS];
    Py_ssize_t n = ends.len / 8, count = PyList_Size(list), rows = -1;
    const int64_t *end = ends.buf;
    int sound = count >= 1 && count <= MAX_WORDS && anchors.len == count && found.len >= 4 * n &&
                n <= INT32_MAX && (n ? end[n - 1] : 0) <= texts.len;
    for (Py_ssize_t i = 0; sound && i < n; i++) sound = end[i] > (i ? end[i - 1] : 0);
    for (Py_ssize_t i = 0; sound && i < count; i++) {
        char *bytes;
        if (PyBytes_AsStringAndSize(PyList_GetItem(list, i), &bytes, &words[i].length) < 0) goto done;
        words[i].bytes = bytes;
        words[i].anchor = ((const unsigned char *)anchors.buf)[i];
        sound = words[i].anchor < words[i].length && !memchr(bytes, '\n', words[i].length);
    }
    if (!sound) {
        PyErr_SetString(PyExc_ValueError, "the buffers do not fit together");
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    rows = find_rows(texts.buf, end, n, words, count, found.buf);
    Py_END_ALLOW_THREADS
done:
    PyBuffer_Release(&texts);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&anchors);
    PyBuffer_Release(&found);
    return rows < 0 ? NULL : PyLong_FromSsize_t(rows);
}

static PyMethodDef methods[] = {{"find", find, METH_VARARGS, "Rows whose text holds every word."}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_names", NULL, 0, methods};
PyMODINIT_FUNC PyInit__names(void) { return PyModule_Create(&module); }
