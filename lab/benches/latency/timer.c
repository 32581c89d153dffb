/* Starts programs as thinly as it goes (posix_spawn, stdout to /dev/null, no pipes) and measures their whole lives:
 *
 *     timer ROUNDS RUNS PROGRAM [ARGUMENT...] [-- PROGRAM [ARGUMENT...]]...
 *
 * The programs take turns, RUNS times in each round. For each round it prints one line with a column per program: the
 * median in nanoseconds, a slash, and the median of the page faults without input or output.
 *
 * Standard input is a socket with the byte that a launcher of the broker waits for. Other programs do not read it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROGRAMS = 16, INPUT = 100 };
extern char **environ;

static void fail(const char *what, const char *whose) {
    fprintf(stderr, "timer: %s: %s\n", whose, what);
    exit(1);
}

static long long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int ascending(const void *a, const void *b) {
    long long x = *(const long long *)a, y = *(const long long *)b;
    return (x > y) - (x < y);
}

static long long median(long long *values, size_t count) {
    qsort(values, count, sizeof *values, ascending);
    return values[count / 2];
}

int main(int argc, char **argv) {
    char **programs[PROGRAMS];
    size_t count = 0;
    if (argc < 4) fail("expected ROUNDS RUNS PROGRAM", "usage");
    size_t rounds = strtoul(argv[1], NULL, 10), runs = strtoul(argv[2], NULL, 10);
    for (int at = 3; at < argc; at++) {
        if (at == 3 || argv[at - 1] == NULL) {
            if (count == PROGRAMS) fail("too many programs", argv[at]);
            programs[count++] = argv + at;
        }
        if (strcmp(argv[at], "--") == 0) argv[at] = NULL;
    }
    long long *times = calloc(count * runs, sizeof *times), *faults = calloc(count * runs, sizeof *faults);
    posix_spawn_file_actions_t actions;
    if (runs == 0 || times == NULL || faults == NULL || posix_spawn_file_actions_init(&actions) != 0 ||
        posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0) != 0 ||
        posix_spawn_file_actions_adddup2(&actions, INPUT, 0) != 0)
        fail("cannot start", "timer");
    for (size_t round = 0; round < rounds; round++) {
        for (size_t run = 0; run < runs; run++) {
            for (size_t each = 0; each < count; each++) {
                struct rusage usage;
                pid_t child;
                int status, ends[2];
                if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0 || write(ends[0], "S", 1) != 1 ||
                    (ends[1] != INPUT && dup3(ends[1], INPUT, O_CLOEXEC) < 0))
                    fail(strerror(errno), "socketpair");
                long long start = now();
                int error = posix_spawn(&child, programs[each][0], &actions, NULL, programs[each], environ);
                if (error != 0) fail(strerror(error), programs[each][0]);
                while (wait4(child, &status, 0, &usage) < 0)
                    if (errno != EINTR) fail(strerror(errno), "wait4");
                times[each * runs + run] = now() - start;
                faults[each * runs + run] = usage.ru_minflt;
                if (status != 0) fail("it failed", programs[each][0]);
                close(ends[0]);
                close(ends[1]);
            }
        }
        for (size_t each = 0; each < count; each++)
            printf("%s%lld/%lld", each == 0 ? "" : " ", median(times + each * runs, runs), median(faults + each * runs, runs));
        puts("");
        fflush(stdout);
    }
    return 0;
}
