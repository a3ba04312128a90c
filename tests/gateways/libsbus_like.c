/* A client in the manner of libsbus: one send() or recv() for each message, connected with the whole of a sockaddr_un.
 * usage: client PATH|HEX
 * Says "ok" when everything was as it should be. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SIZE 409600

static char buf[SIZE];

#define CHECK(e) do { if (!(e)) { fprintf(stderr, "line %d: %s\n", __LINE__, #e); perror("last"); exit(1); } } while (0)

static void
say(int fd, const char *kind, const char *key, const char *payload, size_t n)
{
	size_t length = (size_t)sprintf(buf, "%s %s", kind, key);
	if (payload) {
		length += 1;
		memmove(buf + length, payload, n);
		length += n;
	}
	CHECK(send(fd, buf, length, 0) == (ssize_t)length);
}

static size_t
hear(int fd, const char *kind, const char *key, char **payload)
{
	char head[512];
	ssize_t n = recv(fd, buf, sizeof(buf), 0);
	size_t length = (size_t)sprintf(head, "%s %s", kind, key) + 1;
	CHECK(n >= (ssize_t)length);
	CHECK(!memcmp(buf, head, length));
	*payload = buf + length;
	return (size_t)n - length;
}

int
main(int argc, char **argv)
{
	struct sockaddr_un addr;
	char key[512], text[32], secret[512], *payload;
	int fd, i, room = SIZE;
	unsigned byte;
	size_t n;

	CHECK(argc == 2);
	memset(&addr, 0, sizeof(addr));
	addr.sun_family = AF_UNIX;
	if (strlen(argv[1]) == 2 * sizeof(addr.sun_path))
		for (n = 0; n < sizeof(addr.sun_path); n++) {
			CHECK(sscanf(argv[1] + 2 * n, "%2x", &byte) == 1);
			addr.sun_path[n] = (char)byte;
		}
	else
		strcpy(addr.sun_path, argv[1]);
	CHECK((fd = socket(PF_UNIX, SOCK_SEQPACKET, 0)) >= 0);
	CHECK(!connect(fd, (struct sockaddr *)&addr, (socklen_t)sizeof(addr)));

	say(fd, "SUB", "test/", NULL, 0);
	say(fd, "SUB", "discard", NULL, 0);
	say(fd, "UNSUB", "discard", NULL, 0);
	say(fd, "MSG", "discard", "not caught", 10);
	for (i = 0; i < 100; i++) {
		sprintf(key, "test/%d", i);
		say(fd, "MSG", key, text, (size_t)sprintf(text, "%d", i));
	}
	for (i = 0; i < 100; i++) {
		sprintf(key, "test/%d", i);
		n = hear(fd, "MSG", key, &payload);
		CHECK(n == (size_t)sprintf(text, "%d", i) && !memcmp(payload, text, n));
	}
	CHECK(recv(fd, buf, sizeof(buf), MSG_DONTWAIT) < 0);

	say(fd, "CMSG", "!/cred/whoami", "", 0);
	n = hear(fd, "CMSG", "!/cred/whoami", &payload);
	sprintf(secret, "!/cred/%d/%d/%d", (int)getegid(), (int)geteuid(), (int)getpid());
	CHECK(n == strlen(secret) && !memcmp(payload, secret, n));
	strcat(secret, "/talk");
	say(fd, "SUB", secret, NULL, 0);
	say(fd, "MSG", secret, "between us", 10);
	CHECK(hear(fd, "MSG", secret, &payload) == 10 && !memcmp(payload, "between us", 10));

	CHECK(!setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room)));
	memset(buf, 'x', SIZE);
	memcpy(buf, "MSG test/big", 13);
	CHECK(send(fd, buf, SIZE, 0) == SIZE);
	CHECK(hear(fd, "MSG", "test/big", &payload) == SIZE - 13);
	for (n = 0; n < SIZE - 13; n++)
		CHECK(payload[n] == 'x');
	puts("ok");
	return 0;
}
