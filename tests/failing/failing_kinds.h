/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions that failing.c wraps. CMakeLists.txt lists the same functions,
 * and free.
 */
#ifndef TESTS_FAILING_FAILING_KINDS_H
#define TESTS_FAILING_FAILING_KINDS_H

#define FAILING_KINDS(KIND)                                                    \
    KIND(malloc)                                                               \
    KIND(calloc)                                                               \
    KIND(realloc)                                                              \
    KIND(strdup)                                                               \
    KIND(posix_memalign)                                                       \
    KIND(mmap)                                                                 \
    KIND(memfd_create)                                                         \
    KIND(ftruncate)                                                            \
    KIND(posix_fallocate)                                                      \
    KIND(open)                                                                 \
    KIND(fopen)                                                                \
    KIND(socket)                                                               \
    KIND(bind)                                                                 \
    KIND(listen)                                                               \
    KIND(connect)                                                              \
    KIND(accept4)                                                              \
    KIND(poll)                                                                 \
    KIND(epoll_create1)                                                        \
    KIND(epoll_ctl)                                                            \
    KIND(eventfd)                                                              \
    KIND(sendmsg)                                                              \
    KIND(recvmsg)                                                              \
    KIND(pthread_create)

#endif
