/* Reads SIZE bytes of standard input by io_uring, as often as asked, and prints what each read gives. */
#include <linux/io_uring.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **words)
{
    struct io_uring_params p = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 4, &p);
    if (ring < 0)
        return perror("io_uring_setup"), 77;
    char *sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring,
                    IORING_OFF_CQ_RING);
    struct io_uring_sqe *sqe = mmap(NULL, p.sq_entries * sizeof *sqe, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    size_t size = count > 1 ? (size_t)atol(words[1]) : 65536;
    char *buffer = malloc(size);
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = IORING_OP_READ;
    sqe->fd = 0;
    sqe->addr = (unsigned long)buffer;
    sqe->len = (unsigned)size;
    sqe->off = (unsigned long)-1;
    *(unsigned *)(sq + p.sq_off.array) = 0;
    __atomic_store_n((unsigned *)(sq + p.sq_off.tail), 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
        return perror("io_uring_enter"), 1;
    struct io_uring_cqe *cqe = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
    printf("%d\n", cqe->res);
    return 0;
}
