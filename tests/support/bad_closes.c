/* Preloaded into a server: writes a line to a file each time that a number is closed which is no descriptor.

   Whoever does so closes something twice; the second time the number may be somebody else's. libuv closes by
   syscall(). */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef long (*syscall_function)(long, ...);

static syscall_function the_syscall(void) {
    static syscall_function found;
    if (!found)
        found = (syscall_function)dlsym(RTLD_NEXT, "syscall");
    return found;
}

static int closed(int descriptor) {
    int result = (int)the_syscall()(SYS_close, descriptor);
    if (result == -1 && errno == EBADF) {
        const char *path = getenv("ANTWORT_BAD_CLOSES");
        int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
        if (file >= 0) {
            dprintf(file, "process %d, thread %ld: descriptor %d\n", getpid(), the_syscall()(SYS_gettid), descriptor);
            the_syscall()(SYS_close, file);
        }
        errno = EBADF;
    }
    return result;
}

int close(int descriptor) {
    return closed(descriptor);
}

long syscall(long number, ...) {
    va_list given;
    long arguments[6];
    va_start(given, number);
    for (int i = 0; i < 6; i++)
        arguments[i] = va_arg(given, long);
    va_end(given);
    if (number == SYS_close)
        return closed((int)arguments[0]);
    return the_syscall()(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}
