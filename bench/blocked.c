/* Blocks many readers on one file: each opens it for itself and waits in read(2) in a thread of its own, until each has got something.
 * In C, since thousands of threads of Python that wake up at once fight for its lock for seconds.
 *
 * usage: blocked FILE COUNT */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *wait_in_read(void *descriptor)
{
    char line[100];
    ssize_t size;
    do
        size = read((int)(long)descriptor, line, sizeof line);
    while (size < 0 && errno == EINTR);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    long count = atol(argv[2]);
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * 1024);
    for (long i = 0; i < count; i++) {
        long descriptor = open(argv[1], O_RDONLY);
        int error = descriptor < 0 ? errno : pthread_create(&threads[i], &small, wait_in_read, (void *)descriptor);
        if (error) {
            fprintf(stderr, "reader %ld: %s\n", i, strerror(error));
            return 1;
        }
    }
    for (long i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
