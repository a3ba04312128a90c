/* hooks.c: what pyfuse3 does not show of libfuse.
 *
 * The one rule: nothing in here knows what a message is. It moves requests between libfuse and Python and decides nothing.
 *
 * The module is loaded with RTLD_GLOBAL before pyfuse3 is imported, so that the dynamic linker resolves pyfuse3's calls of the
 * functions marked INTERPOSED to the ones below; each passes on to libfuse's own (dlsym(RTLD_NEXT)). What they add:
 *
 * - READ and WRITE requests go to two Python callables instead of pyfuse3's handlers, with the flags of the open file as they
 *   are now (fcntl(F_SETFL) after open(2) included). A callable answers at once, or returns None and answers later through the
 *   Request it was given: a blocked call costs one small object, no task.
 * - A signal to a blocked caller (FUSE_INTERRUPT) reaches a third callable; libfuse drops interrupts that nobody registered for.
 * - Opened channels become streams (FOPEN_STREAM: no file position, so no lock that a blocked reader would hold against
 *   writers of the same description) that need no FLUSH. libfuse's reply functions know no stream flag.
 * - Entries carry an st_ino of their own beside the node id.
 * - Runs of READ and WRITE requests are served without a pass through the event loop between them.
 *
 * All calls come from the one thread that runs pyfuse3's loop and holds the GIL.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define FUSE_USE_VERSION 312
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <malloc.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>

#ifndef FOPEN_STREAM
#define FOPEN_STREAM (1 << 4)
#endif
#ifndef FOPEN_NOFLUSH
#define FOPEN_NOFLUSH (1 << 5)
#endif

/* Linux 6.18: asks the kernel to forget nodes that nobody has open, by their node ids. */
#define NOTIFY_PRUNE 9
struct notify_prune {
    uint32_t count;
    uint32_t padding;
    uint64_t spare;
};

#define INTERPOSED __attribute__((visibility("default")))

/* For how long, in nanoseconds, READ and WRITE requests are served before the event loop gets a turn (signals, timers, the
 * text of _stat). */
#define MAX_RUN_NS 5000000

/* How long, in milliseconds, an idle loop stays in poll(2) for the next request before it goes back through the event loop.
 * An answer that wakes a client is usually followed by that client's next request within microseconds. */
#define LINGER_MS 1

/* How much freed memory, in bytes, is kept for the next request rather than given back to the kernel, and from which size on
 * memory is asked of the kernel for each block alone. Writes come in blocks of 128 KiB, which malloc would otherwise give back
 * and fault in again, page by page, for each of them. */
#define KEPT_FREE_BYTES (8 << 20)
#define OWN_MAPPING_BYTES (2 << 20)

static PyObject *on_read, *on_write, *on_interrupt;
static int session_hooked;                       /* fuse_session_new was reached */
static struct fuse_session *nonblocking_session; /* whose descriptor is non-blocking */

/* ---------------------------------------------------------------------------------------------- requests */

typedef struct Request {
    PyObject_HEAD
    fuse_req_t req;              /* NULL once answered */
    int is_parked;               /* the callable returned None: libfuse's interrupt function holds a reference */
    int is_interrupted;          /* already on the list below */
    struct Request *next;        /* list of interrupted requests */
} Request;

static PyTypeObject Request_type;
static size_t requests_alive;
static Request *interrupted_head, **interrupted_tail = &interrupted_head;

static Request *request_new(fuse_req_t req)
{
    Request *self = PyObject_New(Request, &Request_type);
    if (self) {
        requests_alive++;
        self->req = req;
        self->is_parked = self->is_interrupted = 0;
        self->next = NULL;
    }
    return self;
}

static void request_dealloc(PyObject *object)
{
    Request *self = (Request *)object;
    if (self->req)
        fuse_reply_err(self->req, EIO);
    requests_alive--;
    PyObject_Free(self);
}

/* Takes the libfuse request out of `self`: it can be answered once. */
static fuse_req_t request_take(Request *self)
{
    fuse_req_t req = self->req;
    self->req = NULL;
    return req;
}

/* Gives back the reference that a parked request holds on itself. */
static void request_unpark(Request *self)
{
    if (self->is_parked) {
        self->is_parked = 0;
        Py_DECREF(self);
    }
}

static int send_data(fuse_req_t req, PyObject *data)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_CONTIG_RO) < 0) {
        fuse_reply_err(req, EIO);
        return -1;
    }
    fuse_reply_buf(req, view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return 0;
}

static PyObject *answer_twice(void)
{
    PyErr_SetString(PyExc_RuntimeError, "this request was answered before");
    return NULL;
}

static PyObject *request_data(PyObject *object, PyObject *data)
{
    Request *self = (Request *)object;
    fuse_req_t req = request_take(self);
    if (!req)
        return answer_twice();
    int failed = send_data(req, data);
    request_unpark(self);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *request_written(PyObject *object, PyObject *count)
{
    Request *self = (Request *)object;
    size_t size = PyLong_AsSize_t(count);
    if (PyErr_Occurred())
        return NULL;
    fuse_req_t req = request_take(self);
    if (!req)
        return answer_twice();
    fuse_reply_write(req, size);
    request_unpark(self);
    Py_RETURN_NONE;
}

static PyObject *request_error(PyObject *object, PyObject *number)
{
    Request *self = (Request *)object;
    long error = PyLong_AsLong(number);
    if (PyErr_Occurred())
        return NULL;
    fuse_req_t req = request_take(self);
    if (!req)
        return answer_twice();
    fuse_reply_err(req, (int)error);
    request_unpark(self);
    Py_RETURN_NONE;
}

static PyMethodDef request_methods[] = {
    {"data", request_data, METH_O, "Answer a read with these bytes."},
    {"written", request_written, METH_O, "Answer a write: this many bytes were accepted."},
    {"error", request_error, METH_O, "Answer with this errno."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject Request_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "futebus.fuse._hooks.Request",
    .tp_doc = "A read or write that the kernel waits for. Answer it once.",
    .tp_basicsize = sizeof(Request),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_dealloc = request_dealloc,
    .tp_methods = request_methods,
};

/* libfuse's interrupt function. It only takes note: libfuse holds locks around it that answering the request could free.
 * It is called from within fuse_req_interrupt_func when the interrupt came before the request was registered. */
static void note_interrupt(fuse_req_t req, void *data)
{
    Request *self = data;
    (void)req;
    if (self->is_interrupted)
        return;
    self->is_interrupted = 1;
    Py_INCREF(self);
    *interrupted_tail = self;
    interrupted_tail = &self->next;
}

static void deliver_interrupts(void)
{
    Request *self;
    while ((self = interrupted_head)) {
        interrupted_head = self->next;
        if (!interrupted_head)
            interrupted_tail = &interrupted_head;
        if (self->req) { /* else it was answered in the meantime */
            PyObject *result = PyObject_CallOneArg(on_interrupt, (PyObject *)self);
            if (!result)
                PyErr_WriteUnraisable(on_interrupt);
            Py_XDECREF(result);
        }
        Py_DECREF(self);
    }
}

/* What a callable returned: bytes for a read, an int >= 0 for a write, a negative errno for either, None to wait.
 * Takes the reference to `answer`. */
static void settle(Request *self, PyObject *callable, PyObject *answer)
{
    if (!answer) {
        PyErr_WriteUnraisable(callable);
        if (self->req)
            fuse_reply_err(request_take(self), EIO);
    } else if (answer == Py_None) {
        if (self->req) {
            self->is_parked = 1;
            Py_INCREF(self);
            fuse_req_interrupt_func(self->req, note_interrupt, self);
        }
    } else if (self->req) {
        fuse_req_t req = request_take(self);
        if (PyLong_Check(answer)) {
            long number = PyLong_AsLong(answer);
            if (number < 0)
                fuse_reply_err(req, (int)-number);
            else
                fuse_reply_write(req, (size_t)number);
        } else if (send_data(req, answer) < 0) {
            PyErr_WriteUnraisable(callable);
        }
    }
    Py_XDECREF(answer);
    Py_DECREF(self);
    deliver_interrupts();
}

static void serve_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
    (void)ino;
    Request *self = request_new(req);
    if (!self) {
        PyErr_Clear();
        fuse_reply_err(req, ENOMEM);
        return;
    }
    settle(self, on_read,
           PyObject_CallFunction(on_read, "OKnLi", self, (unsigned long long)fi->fh, (Py_ssize_t)size, (long long)offset,
                                 fi->flags));
}

static void serve_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset,
                        struct fuse_file_info *fi)
{
    (void)ino;
    Request *self = request_new(req);
    if (!self) {
        PyErr_Clear();
        fuse_reply_err(req, ENOMEM);
        return;
    }
    settle(self, on_write,
           PyObject_CallFunction(on_write, "OKy#Li", self, (unsigned long long)fi->fh, data, (Py_ssize_t)size,
                                 (long long)offset, fi->flags));
}

/* ---------------------------------------------------------------------------------------------- the session */

static void (*pyfuse3_init)(void *userdata, struct fuse_conn_info *conn);

static void init_connection(void *userdata, struct fuse_conn_info *conn)
{
    pyfuse3_init(userdata, conn);
    /* Asynchronous reads (io_submit with O_DIRECT) count as background requests. A dozen that wait for a message would
     * keep every RELEASE from being sent. */
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
    fuse_unset_feature_flag(conn, FUSE_CAP_ASYNC_DIO);
#else
    conn->want &= ~(unsigned)FUSE_CAP_ASYNC_DIO;
#endif
}

/* pyfuse3's table with our functions in it. */
static const struct fuse_lowlevel_ops *hooked_operations(const struct fuse_lowlevel_ops *theirs, size_t size)
{
    static struct fuse_lowlevel_ops ours;
    memset(&ours, 0, sizeof ours);
    memcpy(&ours, theirs, size < sizeof ours ? size : sizeof ours);
    pyfuse3_init = ours.init;
    ours.init = init_connection;
    ours.read = serve_read;
    ours.write = serve_write;
    /* Without write_buf libfuse takes requests with a plain read(2), not with two splices. */
    ours.write_buf = NULL;
    /* Absent, these are refused once and the kernel asks no more. */
    ours.flush = NULL;
    ours.fsync = NULL;
    ours.fsyncdir = NULL;
    ours.access = NULL; /* default_permissions */
    ours.setxattr = NULL;
    ours.getxattr = NULL;
    ours.listxattr = NULL;
    ours.removexattr = NULL;
    mallopt(M_TRIM_THRESHOLD, KEPT_FREE_BYTES);
    mallopt(M_MMAP_THRESHOLD, OWN_MAPPING_BYTES);
    session_hooked = 1;
    return &ours;
}

/* libfuse 3.17 made fuse_session_new a macro over a versioned function, of which later versions declare an argument const. */
#ifdef fuse_session_new
INTERPOSED struct fuse_session *session_new_versioned(struct fuse_args *args, const struct fuse_lowlevel_ops *op, size_t op_size,
                                                      const void *version, void *userdata)
    __asm__("fuse_session_new_versioned");

struct fuse_session *session_new_versioned(struct fuse_args *args, const struct fuse_lowlevel_ops *op, size_t op_size,
                                           const void *version, void *userdata)
{
    static struct fuse_session *(*next)(struct fuse_args *, const struct fuse_lowlevel_ops *, size_t, const void *, void *);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "fuse_session_new_versioned");
    if (!next)
        return NULL;
    return next(args, hooked_operations(op, op_size), sizeof(struct fuse_lowlevel_ops), version, userdata);
}
#else
INTERPOSED struct fuse_session *fuse_session_new(struct fuse_args *args, const struct fuse_lowlevel_ops *op,
                                                 size_t op_size, void *userdata)
{
    static struct fuse_session *(*next)(struct fuse_args *, const struct fuse_lowlevel_ops *, size_t, void *);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "fuse_session_new");
    if (!next)
        return NULL;
    return next(args, hooked_operations(op, op_size), sizeof(struct fuse_lowlevel_ops), userdata);
}
#endif

static int64_t nanoseconds_since(const struct timespec *begin)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)(now.tv_sec - begin->tv_sec) * 1000000000 + (now.tv_nsec - begin->tv_nsec);
}

/* Waits a moment for the next request. Returns whether there is one. */
static int linger(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    int ready;
    Py_BEGIN_ALLOW_THREADS
    ready = poll(&poller, 1, LINGER_MS);
    Py_END_ALLOW_THREADS
    return ready > 0;
}

/* Serves READ, WRITE and INTERRUPT requests itself and returns with the first of another kind, which pyfuse3 then processes, or
 * with -EINTR, upon which pyfuse3 waits in its event loop until the descriptor is readable. */
INTERPOSED int fuse_session_receive_buf(struct fuse_session *se, struct fuse_buf *buf)
{
    static int (*next)(struct fuse_session *, struct fuse_buf *);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "fuse_session_receive_buf");
    if (!next)
        return -ENOSYS;
    int fd = fuse_session_fd(se);
    if (nonblocking_session != se) {
        /* A request can be withdrawn (its caller was killed) between poll and read. A blocking read would then stop the whole
         * process until the next request. */
        int flags = fcntl(fd, F_GETFL);
        if (flags >= 0)
            fcntl(fd, F_SETFL, flags | O_NONBLOCK);
        nonblocking_session = se;
    }
    struct timespec begin;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int served = 0; !served || nanoseconds_since(&begin) < MAX_RUN_NS;) {
        int received = next(se, buf);
        if (received == -EAGAIN) {
            if (served && linger(fd))
                continue;
            return -EINTR;
        }
        if (received <= 0)
            return received;
        switch (((struct fuse_in_header *)buf->mem)->opcode) {
        case FUSE_READ:
        case FUSE_WRITE:
        case FUSE_INTERRUPT:
            fuse_session_process_buf(se, buf);
            deliver_interrupts();
            served = 1;
            break;
        default:
            return received;
        }
    }
    return -EINTR;
}

/* ---------------------------------------------------------------------------------------------- replies */

/* An entry's st_rdev, which means nothing for a regular file, carries its st_ino past pyfuse3, which knows one number for node
 * id and st_ino. */
static struct fuse_entry_param with_own_ino(const struct fuse_entry_param *entry)
{
    struct fuse_entry_param own = *entry;
    if (S_ISREG(own.attr.st_mode) && own.attr.st_rdev) {
        own.attr.st_ino = own.attr.st_rdev;
        own.attr.st_rdev = 0;
    }
    return own;
}

INTERPOSED int fuse_reply_entry(fuse_req_t req, const struct fuse_entry_param *entry)
{
    static int (*next)(fuse_req_t, const struct fuse_entry_param *);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "fuse_reply_entry");
    struct fuse_entry_param own = with_own_ino(entry);
    return next(req, &own);
}

INTERPOSED size_t fuse_add_direntry_plus(fuse_req_t req, char *buf, size_t size, const char *name,
                                         const struct fuse_entry_param *entry, off_t offset)
{
    static size_t (*next)(fuse_req_t, char *, size_t, const char *, const struct fuse_entry_param *, off_t);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "fuse_add_direntry_plus");
    struct fuse_entry_param own = with_own_ino(entry);
    return next(req, buf, size, name, &own, offset);
}

/* pyfuse3's FileInfo(nonseekable=True) marks a channel: a stream. Anything else is as libfuse has it. */
static struct fuse_open_out stream_open(const struct fuse_file_info *fi)
{
    return (struct fuse_open_out){.fh = fi->fh, .open_flags = FOPEN_DIRECT_IO | FOPEN_STREAM | FOPEN_NOFLUSH};
}

INTERPOSED int fuse_reply_open(fuse_req_t req, const struct fuse_file_info *fi)
{
    static int (*next)(fuse_req_t, const struct fuse_file_info *);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "fuse_reply_open");
    if (!fi->nonseekable)
        return next(req, fi);
    struct fuse_open_out out = stream_open(fi);
    return fuse_reply_buf(req, (const char *)&out, sizeof out);
}

static void fill_timeout(double seconds, uint64_t *whole, uint32_t *nanoseconds)
{
    *whole = seconds > 0 ? (uint64_t)seconds : 0;
    *nanoseconds = seconds > 0 ? (uint32_t)((seconds - (double)*whole) * 1e9) : 0;
}

INTERPOSED int fuse_reply_create(fuse_req_t req, const struct fuse_entry_param *entry, const struct fuse_file_info *fi)
{
    struct fuse_entry_param own = with_own_ino(entry);
    struct {
        struct fuse_entry_out entry;
        struct fuse_open_out open;
    } out;
    memset(&out, 0, sizeof out);
    out.entry.nodeid = own.ino;
    out.entry.generation = own.generation;
    fill_timeout(own.entry_timeout, &out.entry.entry_valid, &out.entry.entry_valid_nsec);
    fill_timeout(own.attr_timeout, &out.entry.attr_valid, &out.entry.attr_valid_nsec);
    out.entry.attr = (struct fuse_attr){
        .ino = own.attr.st_ino,
        .size = (uint64_t)own.attr.st_size,
        .blocks = (uint64_t)own.attr.st_blocks,
        .atime = (uint64_t)own.attr.st_atim.tv_sec,
        .mtime = (uint64_t)own.attr.st_mtim.tv_sec,
        .ctime = (uint64_t)own.attr.st_ctim.tv_sec,
        .atimensec = (uint32_t)own.attr.st_atim.tv_nsec,
        .mtimensec = (uint32_t)own.attr.st_mtim.tv_nsec,
        .ctimensec = (uint32_t)own.attr.st_ctim.tv_nsec,
        .mode = own.attr.st_mode,
        .nlink = (uint32_t)own.attr.st_nlink,
        .uid = own.attr.st_uid,
        .gid = own.attr.st_gid,
        .rdev = (uint32_t)own.attr.st_rdev,
        .blksize = (uint32_t)own.attr.st_blksize,
    };
    out.open = stream_open(fi);
    return fuse_reply_buf(req, (const char *)&out, sizeof out);
}

/* ---------------------------------------------------------------------------------------------- the module */

static PyObject *hooks_install(PyObject *module, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"read", "write", "interrupt", NULL};
    PyObject *read, *write, *interrupt;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "$OOO", names, &read, &write, &interrupt))
        return NULL;
    session_hooked = 0;
    nonblocking_session = NULL;
    Py_INCREF(read);
    Py_INCREF(write);
    Py_INCREF(interrupt);
    Py_XSETREF(on_read, read);
    Py_XSETREF(on_write, write);
    Py_XSETREF(on_interrupt, interrupt);
    Py_RETURN_NONE;
}

static PyObject *hooks_reached(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyBool_FromLong(session_hooked);
}

static PyObject *hooks_requests(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyLong_FromSize_t(requests_alive);
}

/* The kernel takes no lock for this that somebody could hold who waits for us, so it may be called from anywhere. */
static PyObject *hooks_prune(PyObject *module, PyObject *object)
{
    Py_buffer numbers;
    (void)module;
    if (!nonblocking_session)
        return PyLong_FromLong(EAGAIN);
    if (PyObject_GetBuffer(object, &numbers, PyBUF_CONTIG_RO) < 0)
        return NULL;
    struct notify_prune prune = {.count = (uint32_t)((size_t)numbers.len / sizeof(uint64_t))};
    struct fuse_out_header header = {.len = (uint32_t)(sizeof header + sizeof prune + prune.count * sizeof(uint64_t)),
                                     .error = NOTIFY_PRUNE};
    struct iovec parts[] = {{&header, sizeof header}, {&prune, sizeof prune}, {numbers.buf, (size_t)numbers.len}};
    ssize_t written = writev(fuse_session_fd(nonblocking_session), parts, 3);
    int error = written < 0 ? errno : 0;
    PyBuffer_Release(&numbers);
    return PyLong_FromLong(error);
}

static PyMethodDef hooks_methods[] = {
    {"install", (PyCFunction)(void (*)(void))hooks_install, METH_VARARGS | METH_KEYWORDS,
     "install(*, read, write, interrupt): the callables that serve the next session."},
    {"reached", hooks_reached, METH_NOARGS, "Whether the session made since install() goes through the hooks."},
    {"prune", hooks_prune, METH_O,
     "Asks the kernel to forget nodes, given as an array of 64-bit numbers. Returns 0 or an errno."},
    {"requests", hooks_requests, METH_NOARGS, "How many Requests there are: those that wait, if nothing is left over."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef hooks_module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "futebus.fuse._hooks",
    .m_doc = "What pyfuse3 does not show of libfuse: see hooks.c.",
    .m_size = -1,
    .m_methods = hooks_methods,
};

#define STRINGIFY(x) #x
#define VERSION_TEXT(major, minor) STRINGIFY(major) "." STRINGIFY(minor)

PyMODINIT_FUNC PyInit__hooks(void)
{
    if (PyType_Ready(&Request_type) < 0)
        return NULL;
    PyObject *module = PyModule_Create(&hooks_module);
    if (!module)
        return NULL;
    if (PyModule_AddObjectRef(module, "Request", (PyObject *)&Request_type) < 0 ||
        PyModule_AddStringConstant(module, "BUILT_WITH", VERSION_TEXT(FUSE_MAJOR_VERSION, FUSE_MINOR_VERSION)) < 0 ||
        PyModule_AddStringConstant(module, "RUNNING", fuse_pkgversion()) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
