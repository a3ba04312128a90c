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
 * - ioctl(2) with a number of ours reaches a fourth or fifth callable, with the handle of the open file that it is about.
 * - A READ that comes from the kernel's page cache (mmap, sendfile, readahead) is refused: nobody would be there to interrupt it.
 * - Inodes can be made long (FUSE_NOTIFY_STORE), so that writes of one inode do not exclude each other.
 * - Who sets times that are not both "now", which only the owner may, is told from who sets those: see `mark_times`.
 * - The kernel can be told not to believe what it is about to be told of an inode (FUSE_NOTIFY_INVAL_INODE).
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
#include <fuse_log.h>
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <malloc.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>

#ifndef FOPEN_STREAM
#define FOPEN_STREAM (1 << 4)
#endif
#ifndef FOPEN_NOFLUSH
#define FOPEN_NOFLUSH (1 << 5)
#endif
#ifndef FOPEN_PARALLEL_DIRECT_WRITES
#define FOPEN_PARALLEL_DIRECT_WRITES (1 << 6)
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
static int hurried; /* whether the event loop has something to do: then it does not */

/* How much freed memory, in bytes, is kept for the next request rather than given back to the kernel, and from which size on
 * memory is asked of the kernel for each block alone. Writes come in blocks of 128 KiB, which malloc would otherwise give back
 * and fault in again, page by page, for each of them. */
#define KEPT_FREE_BYTES (8 << 20)
#define OWN_MAPPING_BYTES (2 << 20)

/* The numbers of our ioctl(2)s, of a file: see core/inquiry.py. */
#define INQUIRY_BYTES 48
#define INQUIRE _IOR(0xF5, 1, char[INQUIRY_BYTES])
#define SHUT _IO(0xF5, 2)

/* How many background requests (RELEASE is one) the kernel sends before one of them is answered. None of ours ever waits. */
#define MAX_BACKGROUND 512

/* How much memory must be had beside what is used, or writes and opens are refused: what has been accepted is then handed out
 * with it, and what happens inside meanwhile goes on. It is looked for each time that so much has been taken. */
#define RESERVE_BYTES (8 << 20)
#define LARGE_PIECE_BYTES (64 << 10) /* what is freed lies between what is not: a queue is 128 KiB long */
#define SMALL_PIECE_BYTES 512
#define LOOK_EVERY_BYTES (512 << 10)
#define LOOK_AGAIN_NS 20000000 /* while there is none */

/* What a write costs beside its bytes. */
#define WRITE_BYTES 1024

static PyObject *on_read, *on_write, *on_interrupt, *on_inquire, *on_shut;
static int session_hooked;                       /* fuse_session_new was reached */
static struct fuse_session *nonblocking_session; /* whose descriptor is non-blocking */
static int is_cached_read;                       /* whether the READ that is being served fills the page cache */
static unsigned long drained;                    /* how often there was no request left */

static int64_t nanoseconds_since(const struct timespec *begin)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)(now.tv_sec - begin->tv_sec) * 1000000000 + (now.tv_nsec - begin->tv_nsec);
}

/* ---------------------------------------------------------------------------------------------- memory */

static PyObject *on_short;   /* told when memory gets short, and when it is so no more */
static int is_short;
static size_t taken = LOOK_EVERY_BYTES; /* since the last look */

/* Whether the reserve could be had of what has been freed, and Python or malloc keep: half of it in larger pieces, half in small
 * ones. */
static int have_freed(void)
{
    struct piece {
        struct piece *next;
    } *large = NULL, *small = NULL, *piece;
    size_t had = 0;
    while (had < RESERVE_BYTES / 2 && (piece = malloc(LARGE_PIECE_BYTES))) {
        piece->next = large;
        large = piece;
        had += LARGE_PIECE_BYTES;
    }
    while (had >= RESERVE_BYTES / 2 && had < RESERVE_BYTES && (piece = PyObject_Malloc(SMALL_PIECE_BYTES))) {
        piece->next = small;
        small = piece;
        had += SMALL_PIECE_BYTES;
    }
    while ((piece = large)) {
        large = piece->next;
        free(piece);
    }
    while ((piece = small)) {
        small = piece->next;
        PyObject_Free(piece);
    }
    return had >= RESERVE_BYTES;
}

/* Whether the reserve could be had. It is not touched, so it costs nothing but addresses, which is what RLIMIT_AS, RLIMIT_DATA
 * and strict overcommitment go by. */
static int have_reserve(void)
{
    static struct timespec looked;
    void *mapped = mmap(NULL, RESERVE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped != MAP_FAILED) {
        munmap(mapped, RESERVE_BYTES);
        return 1;
    }
    /* This takes a while, and many may ask in vain. */
    if (is_short && nanoseconds_since(&looked) < LOOK_AGAIN_NS)
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &looked);
    return have_freed();
}

/* Whether there is memory for something of this size, and the reserve beside it. */
static int has_room(size_t size)
{
    taken += size;
    if (!is_short && taken < LOOK_EVERY_BYTES)
        return 1;
    taken = 0;
    int was_short = is_short;
    is_short = !have_reserve();
    if (is_short != was_short && on_short) {
        PyObject *result = PyObject_CallFunction(on_short, "O", is_short ? Py_True : Py_False);
        if (!result)
            PyErr_WriteUnraisable(on_short);
        Py_XDECREF(result);
    }
    return !is_short;
}

/* ---------------------------------------------------------------------------------------------- requests */

typedef struct Request {
    PyObject_HEAD
    fuse_req_t req;              /* NULL once answered */
    int is_parked;               /* the callable returned None: libfuse's interrupt function holds a reference */
    int is_interrupted;          /* already on the list below */
    int failures;                /* how often the interrupt could not be delivered */
    struct Request *next;        /* list of interrupted requests */
} Request;

/* How often an error inside may keep an interrupt from being delivered. */
#define MAX_FAILURES 100

static PyTypeObject Request_type;
static size_t requests_alive;
static Request *interrupted_head, **interrupted_tail = &interrupted_head;

static Request *request_new(fuse_req_t req)
{
    Request *self = PyObject_New(Request, &Request_type);
    if (self) {
        requests_alive++;
        self->req = req;
        self->is_parked = self->is_interrupted = self->failures = 0;
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
    Request *self, *again = NULL, **again_tail = &again;
    while ((self = interrupted_head)) {
        interrupted_head = self->next;
        if (!interrupted_head)
            interrupted_tail = &interrupted_head;
        self->next = NULL;
        PyObject *result = NULL;
        if (!self->req || (result = PyObject_CallOneArg(on_interrupt, (PyObject *)self))) {
            /* else it was answered in the meantime */
            Py_XDECREF(result);
            Py_DECREF(self);
            continue;
        }
        PyErr_WriteUnraisable(on_interrupt);
        if (self->req && ++self->failures < MAX_FAILURES) {
            /* The kernel says it once. It is tried again behind the next request: until then the caller waits on. */
            *again_tail = self;
            again_tail = &self->next;
            continue;
        }
        if (self->req) { /* nobody may wait beyond the reach of signals for ever */
            fuse_reply_err(request_take(self), EIO);
            request_unpark(self);
        }
        Py_DECREF(self);
    }
    if (again) {
        interrupted_head = again;
        interrupted_tail = again_tail;
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
    if (is_cached_read) {
        /* What a channel says is read once and belongs to who reads it: there is nothing that could be cached. And whoever
         * waits for a page cannot be interrupted, holds the page's lock, and may be the kernel itself, one of whose few
         * background requests this then is. EINVAL is what a file says that sendfile(2) is not for: programs then read(2). */
        fuse_reply_err(req, EINVAL);
        return;
    }
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
    if (!has_room(size + WRITE_BYTES)) {
        fuse_reply_err(req, EIO);
        return;
    }
    Request *self = request_new(req);
    if (!self) {
        PyErr_Clear();
        fuse_reply_err(req, EIO);
        return;
    }
    settle(self, on_write,
           PyObject_CallFunction(on_write, "OKy#Lil", self, (unsigned long long)fi->fh, data, (Py_ssize_t)size,
                                 (long long)offset, fi->flags, (long)fuse_req_ctx(req)->pid));
}

static void serve_shut(fuse_req_t req, uint64_t handle)
{
    PyObject *answer = PyObject_CallFunction(on_shut, "K", (unsigned long long)handle);
    long error = answer ? PyLong_AsLong(answer) : -1;
    if (error < 0) {
        PyErr_WriteUnraisable(on_shut);
        error = EIO;
    }
    Py_XDECREF(answer);
    if (error)
        fuse_reply_err(req, (int)error);
    else
        fuse_reply_ioctl(req, 0, NULL, 0);
}

static void serve_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int number, void *argument, struct fuse_file_info *fi,
                        unsigned flags, const void *data, size_t size, size_t room)
{
    (void)ino;
    (void)argument;
    (void)data;
    (void)size;
    if (number == SHUT && !(flags & FUSE_IOCTL_DIR)) {
        serve_shut(req, fi->fh);
        return;
    }
    if (number != INQUIRE || flags & FUSE_IOCTL_DIR || room < INQUIRY_BYTES) {
        fuse_reply_err(req, ENOTTY);
        return;
    }
    PyObject *answer = PyObject_CallFunction(on_inquire, "K", (unsigned long long)fi->fh);
    Py_buffer view;
    if (!answer || (answer != Py_None && PyObject_GetBuffer(answer, &view, PyBUF_CONTIG_RO) < 0)) {
        PyErr_WriteUnraisable(on_inquire);
        fuse_reply_err(req, EIO);
    } else if (answer == Py_None) {
        fuse_reply_err(req, ENOTTY);
    } else {
        fuse_reply_ioctl(req, 0, view.buf, (size_t)view.len);
        PyBuffer_Release(&view);
    }
    Py_XDECREF(answer);
}

/* ---------------------------------------------------------------------------------------------- the session */

static void (*pyfuse3_init)(void *userdata, struct fuse_conn_info *conn);

static void init_connection(void *userdata, struct fuse_conn_info *conn)
{
    pyfuse3_init(userdata, conn);
    /* Asynchronous reads (io_submit with O_DIRECT, readahead) count as background requests. So many of them that wait would
     * keep every RELEASE from being sent. */
#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 17)
    fuse_unset_feature_flag(conn, FUSE_CAP_ASYNC_DIO);
    fuse_unset_feature_flag(conn, FUSE_CAP_ASYNC_READ);
    /* Else the kernel itself makes an inode that is opened with O_TRUNC short, behind our answer. */
    fuse_unset_feature_flag(conn, FUSE_CAP_ATOMIC_O_TRUNC);
#else
    conn->want &= ~(unsigned)(FUSE_CAP_ASYNC_DIO | FUSE_CAP_ASYNC_READ | FUSE_CAP_ATOMIC_O_TRUNC);
#endif
    conn->max_background = MAX_BACKGROUND;
    conn->congestion_threshold = MAX_BACKGROUND;
}

static void (*pyfuse3_setattr)(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi);

#define BOTH_NOW (FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME_NOW)

/* pyfuse3 does not tell "now" from a time that somebody names. Its `update_ctime` does from here on: the kernel itself sends a
 * ctime with cached writes only, of which we have none. "Now" for one of the times alone is the owner's right as well. */
static void mark_times(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi)
{
    to_set &= ~FUSE_SET_ATTR_CTIME;
    if (to_set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME) && !(to_set & FUSE_SET_ATTR_SIZE)
        && (to_set & BOTH_NOW) != BOTH_NOW)
        to_set |= FUSE_SET_ATTR_CTIME;
    pyfuse3_setattr(req, ino, attr, to_set, fi);
}

/* pyfuse3's table with our functions in it. */
static const struct fuse_lowlevel_ops *hooked_operations(const struct fuse_lowlevel_ops *theirs, size_t size)
{
    static struct fuse_lowlevel_ops ours;
    memset(&ours, 0, sizeof ours);
    memcpy(&ours, theirs, size < sizeof ours ? size : sizeof ours);
    pyfuse3_init = ours.init;
    ours.init = init_connection;
    pyfuse3_setattr = ours.setattr;
    ours.setattr = mark_times;
    ours.read = serve_read;
    ours.write = serve_write;
    ours.ioctl = serve_ioctl;
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
    mallopt(M_ARENA_MAX, 1); /* one thread does it all; an arena for each would reserve 64 MB of addresses */
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
            drained++;
            if (served && !hurried && linger(fd))
                continue;
            return -EINTR;
        }
        if (received == -ECONNABORTED) { /* as ENODEV, of which libfuse makes the same: it has been cut */
            fuse_session_exit(se);
            return 0;
        }
        if (received <= 0)
            return received;
        switch (((struct fuse_in_header *)buf->mem)->opcode) {
        case FUSE_READ:
            /* The kernel names the owner of locks in each read(2), and has none to name when it reads for the page cache. */
            is_cached_read = !(((struct fuse_read_in *)((struct fuse_in_header *)buf->mem + 1))->read_flags & FUSE_READ_LOCKOWNER);
            /* fall through */
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
    return (struct fuse_open_out){
        .fh = fi->fh, .open_flags = FOPEN_DIRECT_IO | FOPEN_STREAM | FOPEN_NOFLUSH | FOPEN_PARALLEL_DIRECT_WRITES};
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
    static char *names[] = {"read", "write", "interrupt", "inquire", "shut", NULL};
    PyObject *read, *write, *interrupt, *inquire, *shut;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "$OOOOO", names, &read, &write, &interrupt, &inquire, &shut))
        return NULL;
    session_hooked = 0;
    nonblocking_session = NULL;
    Py_INCREF(read);
    Py_INCREF(write);
    Py_INCREF(interrupt);
    Py_INCREF(inquire);
    Py_INCREF(shut);
    Py_XSETREF(on_read, read);
    Py_XSETREF(on_write, write);
    Py_XSETREF(on_interrupt, interrupt);
    Py_XSETREF(on_inquire, inquire);
    Py_XSETREF(on_shut, shut);
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

static PyObject *hooks_is_waited_for(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    if (!nonblocking_session)
        Py_RETURN_FALSE;
    struct pollfd poller = {.fd = fuse_session_fd(nonblocking_session), .events = POLLIN};
    return PyBool_FromLong(poll(&poller, 1, 0) > 0);
}

static PyObject *hooks_drained(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyLong_FromUnsignedLong(drained);
}

static PyObject *hooks_is_connected(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    if (!nonblocking_session)
        Py_RETURN_TRUE;
    struct pollfd poller = {.fd = fuse_session_fd(nonblocking_session)};
    return PyBool_FromLong(poll(&poller, 1, 0) == 0 || !(poller.revents & POLLERR));
}

static PyObject *hooks_hurry(PyObject *module, PyObject *is_hurried)
{
    (void)module;
    int truth = PyObject_IsTrue(is_hurried);
    if (truth < 0)
        return NULL;
    hurried = truth;
    Py_RETURN_NONE;
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

/* Sets an inode's size in the kernel: a byte is stored in its page cache at the end. That takes the lock of this page, which a
 * READ for the page cache holds while it waits for us; so it is for inodes that nobody has open. */
static PyObject *hooks_lengthen(PyObject *module, PyObject *args)
{
    unsigned long long number, size;
    (void)module;
    if (!PyArg_ParseTuple(args, "KK", &number, &size))
        return NULL;
    if (!nonblocking_session)
        return PyLong_FromLong(EAGAIN);
    char byte = 0;
    struct fuse_notify_store_out store = {.nodeid = number, .offset = size - 1, .size = 1};
    struct fuse_out_header header = {.len = (uint32_t)(sizeof header + sizeof store + 1), .error = FUSE_NOTIFY_STORE};
    struct iovec parts[] = {{&header, sizeof header}, {&store, sizeof store}, {&byte, 1}};
    return PyLong_FromLong(writev(fuse_session_fd(nonblocking_session), parts, 3) < 0 ? errno : 0);
}

/* Has answers that are under way, or are given soon, to what was asked of an inode change nothing of it: they are passed on to who
 * has asked. The kernel takes them for older than what it knows. No lock is taken for this that somebody could hold who waits. */
static PyObject *hooks_outdate(PyObject *module, PyObject *object)
{
    unsigned long long number = PyLong_AsUnsignedLongLong(object);
    (void)module;
    if (PyErr_Occurred())
        return NULL;
    if (!nonblocking_session)
        return PyLong_FromLong(EAGAIN);
    /* An offset below 0 leaves its pages alone. */
    struct fuse_notify_inval_inode_out outdated = {.ino = number, .off = -1};
    struct fuse_out_header header = {.len = (uint32_t)(sizeof header + sizeof outdated), .error = FUSE_NOTIFY_INVAL_INODE};
    struct iovec parts[] = {{&header, sizeof header}, {&outdated, sizeof outdated}};
    return PyLong_FromLong(writev(fuse_session_fd(nonblocking_session), parts, 2) < 0 ? errno : 0);
}

static PyObject *on_words; /* gets what libfuse has to say */

static void note_words(enum fuse_log_level level, const char *format, va_list arguments)
{
    char words[1024];
    (void)level;
    vsnprintf(words, sizeof words, format, arguments);
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *result = on_words ? PyObject_CallFunction(on_words, "y", words) : NULL;
    if (!result && PyErr_Occurred())
        PyErr_WriteUnraisable(on_words);
    Py_XDECREF(result);
    PyErr_Restore(type, value, traceback);
    PyGILState_Release(state);
}

static PyObject *hooks_listen(PyObject *module, PyObject *callable)
{
    (void)module;
    fuse_set_log_func(callable == Py_None ? NULL : note_words);
    Py_INCREF(callable);
    Py_XSETREF(on_words, callable);
    Py_RETURN_NONE;
}

static PyObject *hooks_watch_memory(PyObject *module, PyObject *callable)
{
    (void)module;
    Py_INCREF(callable);
    Py_XSETREF(on_short, callable);
    Py_RETURN_NONE;
}

static PyObject *hooks_has_room(PyObject *module, PyObject *number)
{
    (void)module;
    size_t size = PyLong_AsSize_t(number);
    if (PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(has_room(size));
}

static PyMethodDef hooks_methods[] = {
    {"install", (PyCFunction)(void (*)(void))hooks_install, METH_VARARGS | METH_KEYWORDS,
     "install(*, read, write, interrupt, inquire, shut): the callables that serve the next session."},
    {"lengthen", hooks_lengthen, METH_VARARGS, "lengthen(number, size): sets the size of an inode that nobody has open. An errno."},
    {"outdate", hooks_outdate, METH_O, "Has answers to what was asked of an inode so far change nothing of it. An errno."},
    {"reached", hooks_reached, METH_NOARGS, "Whether the session made since install() goes through the hooks."},
    {"prune", hooks_prune, METH_O,
     "Asks the kernel to forget nodes, given as an array of 64-bit numbers. Returns 0 or an errno."},
    {"listen", hooks_listen, METH_O, "Names who gets what libfuse would print on stderr, or None: it prints it."},
    {"watch_memory", hooks_watch_memory, METH_O, "Names who is told when memory gets short, and when it is so no more."},
    {"has_room", hooks_has_room, METH_O, "Whether there is memory for so many bytes, beside a reserve."},
    {"is_waited_for", hooks_is_waited_for, METH_NOARGS, "Whether the kernel has a request that has not been read yet."},
    {"drained", hooks_drained, METH_NOARGS, "How often all requests that the kernel had were read. When it grows, those of before are."},
    {"is_connected", hooks_is_connected, METH_NOARGS, "Whether the kernel has not cut the connection, as far as can be told."},
    {"hurry", hooks_hurry, METH_O, "Says whether there is something to do besides: then nobody lingers for the next request."},
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
