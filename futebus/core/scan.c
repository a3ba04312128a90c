/* scan.c: counts newlines, cuts at them, and looks for NUL bytes. bytes.count does it a call of memchr for each, at eight times the
 * cost, and this is what the bus does with every byte that it carries. What a message is, and what follows from the count, is said in
 * framing.py. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

static PyObject *count_lines(const char *data, Py_ssize_t size, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t most)
{
    if (start < 0 || start > stop || stop > size) {
        PyErr_SetString(PyExc_ValueError, "start and stop are not within data");
        return NULL;
    }
    const char *at = data + start, *end = data + stop, *newline;
    Py_ssize_t lines = 0;
    while (lines < most && at < end && *at != '\n' && (newline = memchr(at, '\n', (size_t)(end - at)))) {
        lines++;
        at = newline + 1;
    }
    return Py_BuildValue("nn", lines, (Py_ssize_t)(at - data));
}

static PyObject *scan_lines(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count < 3 || count > 4 || !PyObject_CheckBuffer(args[0])) {
        PyErr_SetString(PyExc_TypeError, "lines(data: bytes, start: int, stop: int, most: int = sys.maxsize)");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[1]);
    Py_ssize_t stop = PyLong_AsSsize_t(args[2]);
    Py_ssize_t most = count == 4 ? PyLong_AsSsize_t(args[3]) : PY_SSIZE_T_MAX;
    if (PyErr_Occurred())
        return NULL;
    if (PyBytes_CheckExact(args[0]))
        return count_lines(PyBytes_AS_STRING(args[0]), PyBytes_GET_SIZE(args[0]), start, stop, most);
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *answer = count_lines(view.buf, view.len, start, stop, most);
    PyBuffer_Release(&view);
    return answer;
}

static PyObject *scan_end(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 3 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "end(data: bytes, start: int, count: int)");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[1]), left = PyLong_AsSsize_t(args[2]), size = PyBytes_GET_SIZE(args[0]);
    if (PyErr_Occurred())
        return NULL;
    if (start < 0 || start > size) {
        PyErr_SetString(PyExc_ValueError, "start is not within data");
        return NULL;
    }
    const char *data = PyBytes_AS_STRING(args[0]), *at = data + start, *newline;
    for (; left > 0; left--, at = newline + 1) {
        if (!(newline = memchr(at, '\n', (size_t)(data + size - at)))) {
            PyErr_SetString(PyExc_ValueError, "data has fewer lines");
            return NULL;
        }
    }
    return PyLong_FromSsize_t(at - data);
}

static PyObject *scan_nul(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 1 || !PyObject_CheckBuffer(args[0])) {
        PyErr_SetString(PyExc_TypeError, "nul(data: bytes)");
        return NULL;
    }
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    const char *found = view.len ? memchr(view.buf, 0, (size_t)view.len) : NULL;
    Py_ssize_t at = found ? found - (const char *)view.buf : -1;
    PyBuffer_Release(&view);
    return PyLong_FromSsize_t(at);
}

static PyObject *scan_split(PyObject *module, PyObject *data)
{
    (void)module;
    char *from, *to, *newline;
    Py_ssize_t size, count = 0;
    if (PyBytes_AsStringAndSize(data, &from, &size) < 0)
        return NULL;
    if (size > INT32_MAX || (size && from[size - 1] != '\n')) {
        PyErr_SetString(PyExc_ValueError, "data does not end in a newline, or is longer than 2 GiB");
        return NULL;
    }
    const char *end = from + size;
    for (const char *at = from; at < end; at++, count++)
        at = memchr(at, '\n', (size_t)(end - at));
    PyObject *texts = PyBytes_FromStringAndSize(NULL, size - count);
    PyObject *ends = PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(int32_t));
    if (!texts || !ends) {
        Py_XDECREF(texts);
        Py_XDECREF(ends);
        return NULL;
    }
    char *begin = to = PyBytes_AS_STRING(texts);
    int32_t *mark = (int32_t *)(void *)PyBytes_AS_STRING(ends);
    *mark++ = 0;
    for (; from < end; from = newline + 1) {
        newline = memchr(from, '\n', (size_t)(end - from));
        memcpy(to, from, (size_t)(newline - from));
        to += newline - from;
        *mark++ = (int32_t)(to - begin);
    }
    return Py_BuildValue("nNN", count, texts, ends);
}

static PyObject *scan_split_all(PyObject *module, PyObject *parts)
{
    (void)module;
    if (!PyList_Check(parts)) {
        PyErr_SetString(PyExc_TypeError, "a list is wanted");
        return NULL;
    }
    Py_ssize_t number = PyList_GET_SIZE(parts), size = 0, all = 0;
    PyObject *texts = NULL, *ends = NULL, *counts = PyList_New(number);
    if (!counts)
        return NULL;
    for (Py_ssize_t part = 0; part < number; part++) {
        char *from;
        Py_ssize_t length, count = 0;
        if (PyBytes_AsStringAndSize(PyList_GET_ITEM(parts, part), &from, &length) < 0)
            goto failed;
        size += length;
        if (!length || from[length - 1] != '\n' || size > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "a part does not end in a newline, or they are longer than 2 GiB");
            goto failed;
        }
        const char *end = from + length;
        for (const char *at = from; at < end; at++, count++) {
            if (*at == '\n') {
                PyErr_SetString(PyExc_ValueError, "a line is empty");
                goto failed;
            }
            at = memchr(at, '\n', (size_t)(end - at));
        }
        PyObject *told = PyLong_FromSsize_t(count);
        if (!told)
            goto failed;
        PyList_SET_ITEM(counts, part, told);
        all += count;
    }
    texts = PyBytes_FromStringAndSize(NULL, size - all);
    ends = PyBytes_FromStringAndSize(NULL, (all + 1) * (Py_ssize_t)sizeof(int32_t));
    if (!texts || !ends)
        goto failed;
    char *begin = PyBytes_AS_STRING(texts), *to = begin;
    int32_t *mark = (int32_t *)(void *)PyBytes_AS_STRING(ends);
    *mark++ = 0;
    for (Py_ssize_t part = 0; part < number; part++) {
        const char *from = PyBytes_AS_STRING(PyList_GET_ITEM(parts, part)), *newline;
        for (const char *end = from + PyBytes_GET_SIZE(PyList_GET_ITEM(parts, part)); from < end; from = newline + 1) {
            newline = memchr(from, '\n', (size_t)(end - from));
            memcpy(to, from, (size_t)(newline - from));
            to += newline - from;
            *mark++ = (int32_t)(to - begin);
        }
    }
    return Py_BuildValue("NNN", counts, texts, ends);
failed:
    Py_DECREF(counts);
    Py_XDECREF(texts);
    Py_XDECREF(ends);
    return NULL;
}

static PyMethodDef scan_methods[] = {
    {"lines", (PyCFunction)(void (*)(void))scan_lines, METH_FASTCALL,
     "lines(data, start, stop, most): how many whole, non-empty lines begin at data[start], up to the first empty one or stop and at "
     "most so many, and where the last of them ends."},
    {"nul", (PyCFunction)(void (*)(void))scan_nul, METH_FASTCALL, "nul(data): where the first NUL byte is; -1 if there is none."},
    {"end", (PyCFunction)(void (*)(void))scan_end, METH_FASTCALL,
     "end(data, start, count): where, in data, the first count lines end that begin at data[start]."},
    {"split", scan_split, METH_O,
     "split(data): how many lines data has, their texts without newlines one behind the other, and where in that each begins, and the "
     "last ends, as 32-bit integers."},
    {"split_all", scan_split_all, METH_O,
     "split_all(parts): how many lines, none of them empty, each of a list of parts has; their texts and their places as by split."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef scan_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "futebus.core._scan",
    .m_doc = "Counts newlines: see scan.c.",
    .m_size = 0,
    .m_methods = scan_methods,
};

PyMODINIT_FUNC PyInit__scan(void)
{
    return PyModule_Create(&scan_module);
}
