/* The least that a process can do to get a credential from the broker: connect, send a recorded HTTP/2 request in one
 * write, read until the answer is complete, print it. What the shim is measured against; REQUEST is a file with the
 * recorded bytes as numbers. */
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const unsigned char request[] = {
#include REQUEST
};

/* Whether a frame of HEADERS (1) or DATA (0) on a stream ends it (flag 1): the last one of an answer does. */
static int complete(const unsigned char *bytes, size_t length) {
    for (size_t at = 0; at + 9 <= length;) {
        size_t size = (size_t)bytes[at] << 16 | (size_t)bytes[at + 1] << 8 | bytes[at + 2];
        if (at + 9 + size > length) return 0;
        if (bytes[at + 3] <= 1 && bytes[at + 4] & 1) return 1;
        at += 9 + size;
    }
    return 0;
}

int main(int argc, char **argv) {
    static unsigned char buffer[65536];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = 0;
    ssize_t count;
    if (argc != 2 || strlen(argv[1]) >= sizeof address.sun_path) return 2;
    strcpy(address.sun_path, argv[1]);
    int stream = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (stream < 0 || connect(stream, (struct sockaddr *)&address, sizeof address) != 0) return 69;
    if (write(stream, request, sizeof request) != (ssize_t)sizeof request) return 69;
    while (!complete(buffer, length)) {
        count = read(stream, buffer + length, sizeof buffer - length);
        if (count <= 0) return 69;
        length += (size_t)count;
    }
    return write(STDOUT_FILENO, buffer, length) == (ssize_t)length ? 0 : 1;
}
