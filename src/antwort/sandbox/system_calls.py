"""The system calls that are known here, by their names: what programs need, and what they are refused.

Each has its number on x86-64 and on 64-bit ARM, `-` where there is no such call. Tests compare them with libseccomp's.
"""

from collections.abc import Mapping
from typing import Final

FILES: Final = """
access 21 -, cachestat 451 451, chdir 80 49, chmod 90 -, chown 92 -, close 3 57, close_range 436 436,
copy_file_range 326 285, creat 85 -, dup 32 23, dup2 33 -, dup3 292 24, faccessat 269 48, faccessat2 439 439,
fadvise64 221 223, fallocate 285 47, fchdir 81 50, fchmod 91 52, fchmodat 268 53, fchmodat2 452 452, fchown 93 55,
fchownat 260 54, fdatasync 75 83, fgetxattr 193 10, flistxattr 196 13, flock 73 32, fremovexattr 199 16,
fsetxattr 190 7, fstat 5 80, fstatfs 138 44, fsync 74 82, ftruncate 77 46, futimesat 261 -, getcwd 79 17,
getdents 78 -, getdents64 217 61, getxattr 191 8, lchown 94 -, lgetxattr 192 9, link 86 -, linkat 265 37,
listxattr 194 11, llistxattr 195 12, lremovexattr 198 15, lseek 8 62, lsetxattr 189 6, lstat 6 -, mkdir 83 -,
mkdirat 258 34, mknod 133 -, mknodat 259 33, newfstatat 262 79, open 2 -, openat 257 56, openat2 437 437, pipe 22 -,
pipe2 293 59, pread64 17 67, preadv 295 69, preadv2 327 286, pwrite64 18 68, pwritev 296 70, pwritev2 328 287,
read 0 63, readahead 187 213, readlink 89 -, readlinkat 267 78, readv 19 65, removexattr 197 14, rename 82 -,
renameat 264 38, renameat2 316 276, rmdir 84 -, setxattr 188 5, stat 4 -,
statfs 137 43, statx 332 291, symlink 88 -, symlinkat 266 36, sync 162 81, sync_file_range 277 84, syncfs 306 267,
truncate 76 45, umask 95 166, unlink 87 -, unlinkat 263 35, utime 132 -, utimensat 280 88, utimes 235 -, write 1 64,
writev 20 66
"""
WAITING: Final = """
epoll_create 213 -, epoll_create1 291 20, epoll_ctl 233 21, epoll_pwait 281 22, epoll_pwait2 441 441,
epoll_wait 232 -, eventfd 284 -, eventfd2 290 19, poll 7 -, ppoll 271 73,
pselect6 270 72, select 23 -, signalfd 282 -, signalfd4 289 74, timerfd_create 283 85, timerfd_gettime 287 87,
timerfd_settime 286 86
"""
"""For several things at once; not for changes of files, which the kernel would keep in memory of nobody's."""
MEMORY: Final = """
brk 12 214, get_mempolicy 239 236, madvise 28 233, membarrier 324 283, mincore 27 232, mlock 149 228, mlock2 325 284,
mlockall 151 230, mprotect 10 226, mremap 25 216, msync 26 227, munlock 150 229, munlockall 152 231,
munmap 11 215, pkey_alloc 330 289, pkey_free 331 290, pkey_mprotect 329 288
"""
PROCESSES: Final = """
alarm 37 -, arch_prctl 158 -, capget 125 90, capset 126 91, clock_getres 229 114, clock_gettime 228 113,
clock_nanosleep 230 115, execve 59 221, execveat 322 281, exit 60 93, exit_group 231 94, fork 57 -, futex 202 98,
futex_requeue 456 456, futex_wait 455 455, futex_waitv 449 449, futex_wake 454 454, get_robust_list 274 100,
getcpu 309 168, getegid 108 177, geteuid 107 175, getgid 104 176, getgroups 115 158, getitimer 36 102,
getpgid 121 155, getpgrp 111 -, getpid 39 172, getppid 110 173, getpriority 140 141, getrandom 318 278,
getresgid 120 150, getresuid 118 148, getrlimit 97 163, getrusage 98 165, getsid 124 156, gettid 186 178,
gettimeofday 96 169, getuid 102 174, ioprio_get 252 31, ioprio_set 251 30, kill 62 129, nanosleep 35 101, pause 34 -,
pidfd_open 434 434, pidfd_send_signal 424 424, prlimit64 302 261, restart_syscall 219 128, rseq 334 293,
rt_sigaction 13 134, rt_sigpending 127 136, rt_sigprocmask 14 135, rt_sigqueueinfo 129 138, rt_sigreturn 15 139,
rt_sigsuspend 130 133, rt_sigtimedwait 128 137, rt_tgsigqueueinfo 297 240, sched_get_priority_max 146 125,
sched_get_priority_min 147 126, sched_getaffinity 204 123, sched_getattr 315 275, sched_getparam 143 121,
sched_getscheduler 145 120, sched_rr_get_interval 148 127, sched_yield 24 124, set_robust_list 273 99,
set_tid_address 218 96, setfsgid 123 152, setfsuid 122 151, setgid 106 144, setgroups 116 159, setitimer 38 103,
setpgid 109 154, setregid 114 143, setresgid 119 149, setresuid 117 147, setreuid 113 145,
setrlimit 160 164, setsid 112 157, setuid 105 146, sigaltstack 131 132, sysinfo 99 179, tgkill 234 131, time 201 -,
times 100 153, tkill 200 130, uname 63 160, vfork 58 -, wait4 61 260, waitid 247 95
"""
"""With their clocks, signals, priorities and limits."""
SOCKETS: Final = """
accept 43 202, accept4 288 242, bind 49 200, connect 42 203, getpeername 52 205, getsockname 51 204,
getsockopt 55 209, listen 50 201, recvfrom 45 207, recvmmsg 299 243, recvmsg 47 212, sendmmsg 307 269, sendmsg 46 211,
sendto 44 206, shutdown 48 210
"""
"""Which sockets there are is another matter."""
EXAMINED: Final = """
clone 56 220, fcntl 72 25, ioctl 16 29, mmap 9 222, personality 135 92, prctl 157 167, sched_setaffinity 203 122,
sched_setattr 314 274, sched_setparam 142 118, sched_setscheduler 144 119, sendfile 40 71, setpriority 141 140,
setsockopt 54 208, socket 41 198, socketpair 53 199, splice 275 76
"""
"""What is allowed or not, by its arguments, or by who counts memory."""
REFUSED: Final = """
acct 163 89, add_key 248 217, adjtimex 159 171, bpf 321 280, chroot 161 51, clock_adjtime 305 266,
clock_settime 227 112, create_module 174 -, delete_module 176 106, fanotify_init 300 262, fanotify_mark 301 263,
finit_module 313 273, fsconfig 431 431, fsmount 432 432, fsopen 430 430, fspick 433 433, get_kernel_syms 177 -,
init_module 175 105, io_uring_enter 426 426, io_uring_register 427 427, io_uring_setup 425 425, ioperm 173 -,
iopl 172 -, kcmp 312 272, kexec_file_load 320 294, kexec_load 246 104, keyctl 250 219, lookup_dcookie 212 18,
mbind 237 235, migrate_pages 256 238, mount 165 40, mount_setattr 442 442, move_mount 429 429, move_pages 279 239,
name_to_handle_at 303 264, nfsservctl 180 42, open_by_handle_at 304 265, open_tree 428 428, perf_event_open 298 241,
pidfd_getfd 438 438, pivot_root 155 41, process_madvise 440 440, process_vm_readv 310 270, process_vm_writev 311 271,
ptrace 101 117, query_module 178 -, quotactl 179 60, quotactl_fd 443 443, reboot 169 142, request_key 249 218,
set_mempolicy 238 237, set_mempolicy_home_node 450 450, setdomainname 171 162, sethostname 170 161, setns 308 268,
settimeofday 164 170, swapoff 168 225, swapon 167 224, sysfs 139 -, syslog 103 116, umount2 166 39, unshare 272 97,
uselib 134 -, userfaultfd 323 282, ustat 136 -, vhangup 153 58
"""
"""What a sandbox never needs and what has led out of others: whoever asks is told that he may not.

All else is told not to exist, as on an older system, so that programs do without: also memory that belongs to no
process (System V's, message queues, `memfd_create`), timers that send any signal, and `clone3`, whose flags no filter
sees.
"""


def numbers(calls: str, machine: str) -> Mapping[str, int]:
    """Return the names of a table with their numbers on a kind of processor, but for those that it does not have."""
    column = ("x86_64", "aarch64").index(machine) + 1
    rows = [row.split() for row in calls.split(",")]
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}
