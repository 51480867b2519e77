/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments are zeroed, sealed and reserved in full. A lack of memory is an
 * error with figures, and descriptors of peers are checked.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include "support/test.h"
#include "topology/node.h"
#include "transport/segment.h"
#include "transport/transport.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

static void
segment_is_whole_and_sealed(void **state)
{
    (void)state;
    for (int huge = 0; huge < 2; huge++) {
        struct uli_segment segment;
        struct stat status;
        int64_t page = sysconf(_SC_PAGESIZE), bytes = 5 * page + 1;
        assert_status(
            uli_segment_create(bytes, true, huge, &segment), ULYX_SUCCESS);
        assert_int_equal(segment.bytes, 6 * page);
        assert_int_equal((uintptr_t)segment.address % (uintptr_t)page, 0);
        assert_int_equal(fstat(segment.fd, &status), 0);
        assert_int_equal(status.st_size, segment.bytes);
        assert_true((int64_t)status.st_blocks * 512 >= segment.bytes);
        assert_int_equal(fcntl(segment.fd, F_GET_SEALS) & seals, seals);
        assert_int_equal(fcntl(segment.fd, F_GETFD), FD_CLOEXEC);
        assert_int_equal(ftruncate(segment.fd, page), -1);
        assert_int_equal(ftruncate(segment.fd, 100 * page), -1);
        for (int64_t i = 0; i < segment.bytes; i += 512)
            assert_int_equal(((char *)segment.address)[i], 0);
        uli_segment_destroy(&segment);
        assert_null(segment.address);
        uli_segment_destroy(&segment); /* a second call is allowed */
    }
}

static void
private_memory_has_no_descriptor(void **state)
{
    (void)state;
    struct uli_segment segment;
    assert_status(uli_segment_create(1, false, true, &segment), ULYX_SUCCESS);
    assert_int_equal(segment.fd, -1);
    assert_int_equal(segment.bytes, sysconf(_SC_PAGESIZE));
    memset(segment.address, 1, (size_t)segment.bytes);
    uli_segment_destroy(&segment);
}

/* Where the kernel can make memory files non-executable, a segment has no
 * execute permission and cannot get it. */
static void
segments_cannot_be_executed(void **state)
{
    (void)state;
    struct uli_segment segment;
    struct stat status;
    int known = memfd_create("test", 0x0008U /* MFD_NOEXEC_SEAL */);
    if (known < 0)
        test_skip("memory files of this kernel can be executed");
    close(known);
    assert_status(uli_segment_create(1, true, false, &segment), ULYX_SUCCESS);
    assert_int_equal(fstat(segment.fd, &status), 0);
    assert_int_equal(status.st_mode & 0111, 0);
    assert_int_not_equal(fchmod(segment.fd, 0755), 0);
    uli_segment_destroy(&segment);
}

static void
missing_bytes_are_named(void **state)
{
    (void)state;
    struct uli_segment segment = {-7, &segment, 3};
    int64_t bytes = INT64_C(1) << 50, available;
    for (int shared = 0; shared < 2; shared++) {
        assert_status(uli_segment_create(bytes, shared, false, &segment),
            ULYX_ERR_NO_MEMORY);
        assert_int_equal(segment.fd, -7); /* untouched */
        const char *text = strstr(ulyx_last_error(), "needs");
        int64_t needed = 0;
        assert_non_null(text);
        assert_int_equal(sscanf(text, "needs %" SCNd64 " bytes, %" SCNd64,
                             &needed, &available),
            2);
        assert_int_equal(needed, bytes);
        assert_true(available > 0 && available < bytes);
    }
    assert_status(uli_segment_create(INT64_MAX, true, false, &segment),
        ULYX_ERR_NO_MEMORY);
    assert_non_null(
        strstr(ulyx_last_error(), "needs 9223372036854775807 bytes, "));
    assert_status(uli_segment_create(-1, true, false, &segment),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_string_equal(
        ulyx_last_error(), "a window's bytes is -1, must be at least 1");
}

/* Runs in a child, because limits cannot be raised again. Returns its exit
 * code. */
static int
in_child(int (*body)(void))
{
    int status = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(body());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

static int
under_limits(void)
{
    struct uli_segment segment;
    struct rlimit limit = {1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    if (uli_segment_create(2 << 20, true, false, &segment) !=
            ULYX_ERR_NO_MEMORY ||
        !strstr(ulyx_last_error(), "ulimit -f"))
        return 1;
    if (uli_segment_create(1 << 20, true, false, &segment) != ULYX_SUCCESS)
        return 2;
    struct rlimit space = {64 << 20, 64 << 20};
    setrlimit(RLIMIT_AS, &space);
    if (uli_segment_create(128 << 20, false, false, &segment) !=
        ULYX_ERR_NO_MEMORY)
        return 3;
    struct rlimit files = {3, 3};
    setrlimit(RLIMIT_NOFILE, &files);
    return uli_segment_create(4096, true, false, &segment) == ULYX_ERR_SYSTEM
               ? 0
               : 4;
}

static void
resource_limits_are_errors(void **state)
{
    (void)state;
    if (SANITIZED)
        test_skip("a sanitizer's own memory does not fit the limits");
    assert_int_equal(in_child(under_limits), 0);
}

static void
signal_ignore(int number)
{
    (void)number;
}

static void
signals_do_not_interrupt_creation(void **state)
{
    (void)state;
    struct uli_segment segment;
    struct sigaction action = {.sa_handler = signal_ignore}, before;
    struct itimerval fast = {{0, 1000}, {0, 1000}}, off = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, &before); /* no SA_RESTART */
    setitimer(ITIMER_REAL, &fast, NULL);
    ulyx_status_t status =
        uli_segment_create(INT64_C(200) << 20, true, false, &segment);
    setitimer(ITIMER_REAL, &off, NULL);
    sigaction(SIGALRM, &before, NULL);
    assert_status(status, ULYX_SUCCESS);
    uli_segment_destroy(&segment);
}

/* ---- descriptors of a peer ----------------------------------------------- */

static void
map_must_fail(int fd, int64_t bytes, const char *text)
{
    struct uli_tr_handle handle = {fd, NULL, bytes};
    void *address = &handle;
    assert_status(
        uli_tr_shm_ops.window_map(&handle, &address), ULYX_ERR_SYSTEM);
    assert_ptr_equal(address, &handle);
    assert_non_null(strstr(ulyx_last_error(), text));
}

static void
malformed_descriptors_are_refused(void **state)
{
    (void)state;
    int page = (int)sysconf(_SC_PAGESIZE);
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, page), 0);
    map_must_fail(fd, page, "not sealed");
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    map_must_fail(fd, page, "not sealed");
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL), 0);
    map_must_fail(fd, page + 1, "announced");
    map_must_fail(fd, 0, "announced");
    map_must_fail(fd, -page, "announced");
    close(fd);
    int file = open("/dev/null", O_RDWR | O_CLOEXEC);
    map_must_fail(file, page, "not a memfd");
    close(file);
    map_must_fail(file, page, "not a memfd");
    int sealed = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(sealed, page), 0);
    assert_int_equal(fcntl(sealed, F_ADD_SEALS, seals & ~F_SEAL_SEAL), 0);
    assert_int_equal(fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL), 0);
    map_must_fail(sealed, page, "mapping");
    close(sealed);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(segment_is_whole_and_sealed),
    cmocka_unit_test(private_memory_has_no_descriptor),
    cmocka_unit_test(segments_cannot_be_executed),
    cmocka_unit_test(missing_bytes_are_named),
    cmocka_unit_test(resource_limits_are_errors),
    cmocka_unit_test(signals_do_not_interrupt_creation),
    cmocka_unit_test(malformed_descriptors_are_refused),
};

ULI_TEST_MAIN("Segment", tests)
