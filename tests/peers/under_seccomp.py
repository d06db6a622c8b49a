"""Runs a program under the denials of Docker's default seccomp profile: python3 under_seccomp.py ROOT UID:GID PROGRAM ARGUMENT...

The profile allows a list of system calls. Listed here are other system calls of Linux on x86-64 and arm64: those that a process without
capabilities, on a kernel of at least 4.8, may not make.
"""

import ctypes
import errno
import os
import sys

import seccomp

DENIED = """
    _sysctl acct add_key afs_syscall bpf chroot clock_settime create_module delete_module fanotify_init finit_module fsconfig
    fsmount fsopen fspick get_kernel_syms get_mempolicy getpmsg init_module io_uring_enter io_uring_register io_uring_setup
    ioperm iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie mbind migrate_pages mount mount_setattr move_mount
    move_pages nfsservctl open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root process_madvise putpmsg
    query_module quotactl quotactl_fd reboot request_key security set_mempolicy set_mempolicy_home_node setdomainname
    sethostname setns settimeofday swapoff swapon sysfs syslog tuxcall umount2 unshare uselib userfaultfd ustat vhangup vserver
""".split()
# personality(2) may have five values in the profile; the server needs none of them.
DENIED.append("personality")
# AF_ALG and AF_VSOCK, which socket(2) may not have.
FAMILIES = (38, 40)
# CLONE_NEW*, of which clone(2) may have none.
NAMESPACES = [1 << bit for bit in (17, 25, 26, 27, 28, 29, 30)]


def load_filter():
    rules = seccomp.SyscallFilter(defaction=seccomp.ALLOW)
    for name in DENIED:
        # Negative numbers belong to calls that this architecture or this version of the library does not have.
        if seccomp.resolve_syscall(seccomp.Arch(), name) >= 0:
            rules.add_rule(seccomp.ERRNO(errno.EPERM), name)
    for family in FAMILIES:
        rules.add_rule(seccomp.ERRNO(errno.EPERM), "socket", seccomp.Arg(0, seccomp.EQ, family))
    for flag in NAMESPACES:
        rules.add_rule(seccomp.ERRNO(errno.EPERM), "clone", seccomp.Arg(0, seccomp.MASKED_EQ, flag, flag))
    # The C library then calls clone, whose flags a filter can read.
    rules.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")
    rules.load()


def main():
    root, ids = sys.argv[1:3]
    libc = ctypes.CDLL(None, use_errno=True)
    keyctl = seccomp.resolve_syscall(seccomp.Arch(), "keyctl")
    uid, gid = map(int, ids.split(":"))
    os.chroot(root)
    os.chdir("/")
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    load_filter()
    # KEYCTL_GET_KEYRING_ID of the process, which any process may request without a filter.
    if libc.syscall(keyctl, 0, -2, 1) != -1 or ctypes.get_errno() != errno.EPERM:
        sys.exit("the filter is not in force")
    os.execv(sys.argv[3], sys.argv[3:])


main()
