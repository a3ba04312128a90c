/* A crowd of clients on one file, each with an open file description of its own.
 *
 * usage: crowd FILE COUNT idle|read|poll
 *   idle: they are there. read: each waits in read(2) in a thread of its own, again and again. poll: one thread waits for all of
 *   them in epoll(7), and reads from those that are ready. Prints a newline when all have opened. Ends by a signal. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static char scratch[4096];

static void *read_for_ever(void *descriptor)
{
    char line[4096];
    ssize_t size;
    do
        size = read((int)(long)descriptor, line, sizeof line);
    while (size > 0 || (size < 0 && errno == EINTR));
    return NULL;
}

static void poll_for_ever(int poller)
{
    struct epoll_event ready[256];
    for (;;) {
        int count = epoll_wait(poller, ready, 256, -1);
        for (int i = 0; i < count; i++)
            while (read(ready[i].data.fd, scratch, sizeof scratch) > 0)
                ;
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    long count = atol(argv[2]);
    int reads = !strcmp(argv[3], "read"), polls = !strcmp(argv[3], "poll");
    int poller = epoll_create1(0);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * 1024);
    for (long i = 0; i < count; i++) {
        int descriptor = open(argv[1], O_RDONLY | (polls ? O_NONBLOCK : 0));
        int error = descriptor < 0 ? errno : 0;
        if (!error && reads) {
            pthread_t thread;
            error = pthread_create(&thread, &small, read_for_ever, (void *)(long)descriptor);
        } else if (!error && polls) {
            struct epoll_event event = {.events = EPOLLIN, .data.fd = descriptor};
            error = epoll_ctl(poller, EPOLL_CTL_ADD, descriptor, &event) < 0 ? errno : 0;
        }
        if (error) {
            fprintf(stderr, "client %ld: %s\n", i, strerror(error));
            return 1;
        }
    }
    puts("");
    fflush(stdout);
    if (polls)
        poll_for_ever(poller);
    for (;;)
        pause();
}
