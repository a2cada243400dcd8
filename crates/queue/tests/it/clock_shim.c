/* Shifts CLOCK_REALTIME by the number of seconds written in the file that CLOCK_SHIFT_FILE names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, at);
    const char *path = getenv("CLOCK_SHIFT_FILE");
    if (answer == 0 && clock == CLOCK_REALTIME && path) {
        FILE *file = fopen(path, "r");
        long seconds = 0;
        if (file) {
            if (fscanf(file, "%ld", &seconds) == 1) at->tv_sec += seconds;
            fclose(file);
        }
    }
    return answer;
}
