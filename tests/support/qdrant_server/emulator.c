/* Loaded into QEMU, which runs Qdrant where its program cannot run by itself.
 *
 * QEMU asks how long a line of the instruction cache is, and starts each block of the code that it translates, and what
 * it knows of the block, on a line of its own. On processors with a certain erratum (Neoverse N1, 1542419) Linux says
 * that a line is a page. A block then takes 8 KB instead of a few hundred bytes, QEMU's buffer is full after a few
 * requests, and all of Qdrant is translated again and again. Whoever invalidates lines may take them to be shorter than
 * they are said to be, so that this is safe; of the lengths that were tried, this one makes Qdrant quickest.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

enum { LONGEST_LINE = 256 };

long sysconf(int name)
{
    long (*ask)(int) = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    long value = ask(name);
    return name == _SC_LEVEL1_ICACHE_LINESIZE && value > LONGEST_LINE ? LONGEST_LINE : value;
}
