/* scan.c: counts newlines. bytes.count does it a call of memchr for each, at eight times the cost, and this is what the bus does
 * with every byte that it carries. What a message is, and what follows from the count, is said in framing.py. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

static PyObject *count_lines(const char *data, Py_ssize_t size, Py_ssize_t start, Py_ssize_t stop)
{
    if (start < 0 || start > stop || stop > size) {
        PyErr_SetString(PyExc_ValueError, "start and stop are not within data");
        return NULL;
    }
    const char *at = data + start, *end = data + stop, *newline;
    Py_ssize_t lines = 0;
    while (at < end && *at != '\n' && (newline = memchr(at, '\n', (size_t)(end - at)))) {
        lines++;
        at = newline + 1;
    }
    return Py_BuildValue("nn", lines, (Py_ssize_t)(at - data));
}

static PyObject *scan_lines(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 3 || !PyObject_CheckBuffer(args[0])) {
        PyErr_SetString(PyExc_TypeError, "lines(data: bytes, start: int, stop: int)");
        return NULL;
    }
    Py_ssize_t start = PyLong_AsSsize_t(args[1]);
    Py_ssize_t stop = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (PyBytes_CheckExact(args[0]))
        return count_lines(PyBytes_AS_STRING(args[0]), PyBytes_GET_SIZE(args[0]), start, stop);
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *answer = count_lines(view.buf, view.len, start, stop);
    PyBuffer_Release(&view);
    return answer;
}

static PyMethodDef scan_methods[] = {
    {"lines", (PyCFunction)(void (*)(void))scan_lines, METH_FASTCALL,
     "lines(data, start, stop): how many whole, non-empty lines begin at data[start], up to the first empty one or stop, and where "
     "the last of them ends."},
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
