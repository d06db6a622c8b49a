"""Runs a program as a container runtime does: python3 under_seccomp.py PROFILE ROOT UID:GID PROGRAM ARGUMENT...

PROFILE is a container runtime's list of system calls (seccomp.json of containers-common). On top of it, the calls in STRICTER
are denied, as Docker's default profile denies them to a process without capabilities.
"""

import ctypes
import errno
import json
import os
import sys

import seccomp

STRICTER = [
    "add_key", "io_uring_enter", "io_uring_register", "io_uring_setup", "keyctl", "mount", "pivot_root", "request_key",
    "setns", "umount", "umount2", "unshare", "userfaultfd",
]
# CLONE_NEW*, which clone(2) may not have.
NAMESPACES = 0x7E020000
COMPARISONS = {
    "SCMP_CMP_EQ": seccomp.EQ, "SCMP_CMP_NE": seccomp.NE, "SCMP_CMP_MASKED_EQ": seccomp.MASKED_EQ,
    "SCMP_CMP_GT": seccomp.GT, "SCMP_CMP_GE": seccomp.GE, "SCMP_CMP_LT": seccomp.LT, "SCMP_CMP_LE": seccomp.LE,
}
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


def applies(rule):
    """Whether the rule is for this machine and for a process without capabilities."""
    includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
    if includes.get("caps") or ARCHITECTURE in (excludes.get("arches") or []):
        return False
    return not includes.get("arches") or ARCHITECTURE in includes["arches"]


def load_filter(profile):
    default = profile.get("defaultErrnoRet", errno.EPERM)
    rules = seccomp.SyscallFilter(defaction=seccomp.ERRNO(default))

    def deny(name, code, *conditions):
        # The library refuses a rule that is the default.
        if code != default:
            rules.add_rule(seccomp.ERRNO(code), name, *conditions)

    for rule in filter(applies, profile["syscalls"]):
        conditions = [
            seccomp.Arg(one["index"], COMPARISONS[one["op"]], one["value"], one.get("valueTwo", 0))
            for one in rule.get("args") or []
        ]
        for name in rule["names"]:
            known = seccomp.resolve_syscall(seccomp.Arch(), name) >= 0
            if not known or name in (*STRICTER, "clone", "clone3"):
                continue
            if rule["action"] == "SCMP_ACT_ALLOW":
                rules.add_rule(seccomp.ALLOW, name, *conditions)
            else:
                deny(name, rule.get("errnoRet", errno.EPERM), *conditions)
    for name in STRICTER:
        if seccomp.resolve_syscall(seccomp.Arch(), name) >= 0:
            deny(name, errno.EPERM)
    rules.add_rule(seccomp.ALLOW, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, NAMESPACES, 0))
    # The C library then calls clone, whose flags a filter can read.
    deny("clone3", errno.ENOSYS)
    rules.load()


def main():
    profile, root, ids = sys.argv[1:4]
    profile = json.load(open(profile, encoding="utf-8"))
    libc = ctypes.CDLL(None, use_errno=True)
    keyctl = seccomp.resolve_syscall(seccomp.Arch(), "keyctl")
    uid, gid = map(int, ids.split(":"))
    os.chroot(root)
    os.chdir("/")
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    load_filter(profile)
    # KEYCTL_GET_KEYRING_ID of the process, which any process may request without a filter.
    if libc.syscall(keyctl, 0, -2, 1) != -1 or ctypes.get_errno() != errno.EPERM:
        sys.exit("the filter is not in force")
    os.execv(sys.argv[4], sys.argv[4:])


main()
