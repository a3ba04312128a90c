/* A bare libfuse file system in C: one file, handlers that return a constant. What the kernel and libfuse cost per request.
 *
 * usage: bare_libfuse -f -s MOUNTPOINT */
#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fuse_lowlevel.h>
#include <string.h>
#include <sys/stat.h>

static const char LINE[] = "ping\n";

static void attributes(fuse_ino_t ino, struct stat *attr)
{
    memset(attr, 0, sizeof *attr);
    attr->st_ino = ino;
    attr->st_mode = ino == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0666;
    attr->st_nlink = 1;
}

static void bare_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct stat attr;
    (void)fi;
    attributes(ino, &attr);
    fuse_reply_attr(req, &attr, 0);
}

static void bare_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi)
{
    (void)attr;
    (void)to_set;
    bare_getattr(req, ino, fi);
}

static void bare_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param entry = {.ino = 2};
    (void)parent;
    if (strcmp(name, "line") != 0) {
        fuse_reply_err(req, ENOENT);
        return;
    }
    attributes(2, &entry.attr);
    fuse_reply_entry(req, &entry);
}

static void bare_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    fi->direct_io = 1;
    fi->nonseekable = 1;
    fuse_reply_open(req, fi);
}

static void bare_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
    (void)ino;
    (void)size;
    (void)offset;
    (void)fi;
    fuse_reply_buf(req, LINE, sizeof LINE - 1);
}

static void bare_write(fuse_req_t req, fuse_ino_t ino, const char *data, size_t size, off_t offset, struct fuse_file_info *fi)
{
    (void)ino;
    (void)data;
    (void)offset;
    (void)fi;
    fuse_reply_write(req, size);
}

static const struct fuse_lowlevel_ops OPERATIONS = {
    .lookup = bare_lookup,
    .getattr = bare_getattr,
    .setattr = bare_setattr,
    .open = bare_open,
    .read = bare_read,
    .write = bare_write,
};

int main(int argc, char **argv)
{
    struct fuse_args args = FUSE_ARGS_INIT(argc, argv);
    struct fuse_cmdline_opts options;
    int status = 1;
    if (fuse_parse_cmdline(&args, &options) != 0)
        return 1;
    struct fuse_session *session = fuse_session_new(&args, &OPERATIONS, sizeof OPERATIONS, NULL);
    if (session && fuse_set_signal_handlers(session) == 0 && fuse_session_mount(session, options.mountpoint) == 0) {
        fuse_daemonize(options.foreground);
        status = fuse_session_loop(session) != 0;
        fuse_session_unmount(session);
        fuse_remove_signal_handlers(session);
        fuse_session_destroy(session);
    }
    return status;
}
