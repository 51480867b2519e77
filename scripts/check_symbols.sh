#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_symbols.sh LIBRARY: glibc 2.28 (RHEL 8 and what most clusters run) has
# every function of glibc that the library calls. A function that only has a
# newer version here is another matter: it was there before, and a build on an
# old system binds to it.
set -eu
# Since 2.28 these have got a new version or another home, all were there:
# mathematics (2.29, 2.35, 2.38), libpthread and libdl (into libc, 2.32, 2.34),
# stat (2.33, a macro before), strtol and its like (2.38, by a macro).
old='^(exp|exp2|log|log2|pow|hypot|fmod|expf|exp2f|logf|log2f|powf)$
^(dlopen|dlsym|dlclose|dlerror|dladdr|shm_open|shm_unlink)$
^pthread_(attr_|barrier_|cond_(init|destroy|wait|timedwait|signal|broadcast)$)
^pthread_(condattr_|create$|detach$|join$|key_|kill$|mutex_|mutexattr_|once$)
^pthread_(rwlock_|self$|setaffinity_np$|getaffinity_np$|setname_np$)
^pthread_(setspecific$|getspecific$|sigmask$|spin_)
^sem_(destroy|init|post|wait|timedwait|trywait|getvalue)$
^(stat|fstat|lstat|fstatat|mknod)$
^__isoc23_(strto|sscanf|fscanf)
^__(libc_start_main|cxa_thread_atexit_impl)$'
new=$(nm -D --undefined-only "$1" | awk '{ print $NF }' \
    | awk -F'@+GLIBC_2\\.' 'NF == 2 && $2 + 0 > 28 { print $1 }' \
    | grep -Ev "$old" || true)
if [ -n "$new" ]; then
    echo "$1 calls functions that glibc 2.28 does not have:" >&2
    echo "$new" >&2
    exit 1
fi
