/* SPDX-License-Identifier: Apache-2.0
 *
 * The flight recorder: calls are read as written, the newest first; values that
 * others may have written into its memory are checked.
 */
#include "comm/record/recorder.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "support/test.h"

static const unsigned char id[16] = {1, 2, 3};
static struct uli_recorder recorder;
static struct uli_recorder_copy copy;

static int
recorder_new(void **state)
{
    const struct uli_recorder_owner owner = {3, 8, 412, id, "train", "node5"};
    (void)state;
    memset(&recorder, 0, sizeof(recorder));
    uli_recorder_open(&recorder, &owner);
    return 0;
}

static uint64_t
call_begin(uint64_t number)
{
    const struct uli_recorder_entry entry = {.call = 1,
        .direction = 2,
        .plan = number + 1,
        .fingerprint = number + 3,
        .number = number,
        .begun_ns = (int64_t)number + 2};
    return uli_recorder_begin(&recorder, &entry);
}

static bool
recorder_read(void)
{
    return uli_recorder_read(&recorder, sizeof(recorder), &copy);
}

static void
calls_are_read_newest_first(void **state)
{
    uint64_t first = call_begin(10), second = call_begin(11);
    (void)state;
    uli_recorder_end(&recorder, first, ULYX_ERR_TIMEOUT, 77);
    uli_recorder_await(&recorder, second, 5);
    assert_true(recorder_read());
    assert_int_equal(copy.rank, 3);
    assert_int_equal(copy.nranks, 8);
    assert_int_equal(copy.pid, 412);
    assert_string_equal(copy.name, "train");
    assert_string_equal(copy.host, "node5");
    assert_int_equal(copy.ncalls, 2);
    assert_int_equal(copy.calls[0].number, 11);
    assert_int_equal(copy.calls[0].plan, 12);
    assert_int_equal(copy.calls[0].begun_ns, 13);
    assert_int_equal(copy.calls[0].direction, 2);
    assert_int_equal(copy.calls[0].awaited, 5);
    assert_int_equal(copy.calls[0].status, ULYX_IN_PROGRESS);
    assert_int_equal(copy.calls[1].number, 10);
    assert_int_equal(copy.calls[1].status, ULYX_ERR_TIMEOUT);
    assert_int_equal(copy.calls[1].ended_ns, 77);
    assert_int_equal(copy.calls[0].ended_ns, 0);
    assert_int_equal(copy.calls[0].fingerprint, 14);
    assert_int_equal(copy.progress.serial, 0);
}

static void
peers_that_a_call_misses_are_noted(void **state)
{
    struct uli_recorder_progress progress = {
        .serial = call_begin(1), .stage = ULI_STAGE_MOVES};
    (void)state;
    recorder.nranks = 200;
    for (int32_t p = 0; p < 100; p++) {
        const struct uli_recorded_peer peer = {
            2 * p, ULI_STAGE_AWAY, (uint64_t)p, 7};
        uli_recorder_miss(&progress, &peer);
    }
    uli_recorder_note(&recorder, &progress);
    assert_true(recorder_read());
    assert_int_equal(copy.progress.serial, progress.serial);
    assert_int_equal(copy.progress.missing, 100);
    assert_int_equal(copy.progress.npeers, ULI_RECORDED_PEERS);
    for (int i = 0; i < ULI_RECORDED_PEERS; i++) {
        assert_int_equal(copy.progress.peers[i].rank, 2 * i);
        assert_int_equal(copy.progress.peers[i].stage, ULI_STAGE_AWAY);
        assert_int_equal(copy.progress.peers[i].sent_chunks, i);
        assert_int_equal(copy.progress.peers[i].received_chunks, 7);
    }
    /* Entries that make no sense, or are being written, are not read. */
    atomic_store(&recorder.progress.peers[5].rank, 200);
    assert_true(recorder_read());
    assert_int_equal(copy.progress.serial, 0);
    atomic_store(&recorder.progress.writing, 1);
    progress.stage = ULI_STAGE_OPENS;
    uli_recorder_note(&recorder, &progress);
    assert_int_equal(atomic_load(&recorder.progress.stage), ULI_STAGE_MOVES);
}

static void
old_calls_make_room_and_stay_unmarked(void **state)
{
    uint64_t first = call_begin(0);
    (void)state;
    for (uint64_t i = 1; i <= ULI_RECORDED_CALLS; i++)
        call_begin(i);
    uli_recorder_end(&recorder, first, ULYX_SUCCESS, 77);
    uli_recorder_await(&recorder, first, 1);
    assert_true(recorder_read());
    assert_int_equal(copy.ncalls, ULI_RECORDED_CALLS);
    for (int i = 0; i < ULI_RECORDED_CALLS; i++) {
        assert_int_equal(copy.calls[i].number, ULI_RECORDED_CALLS - i);
        assert_int_equal(copy.calls[i].status, ULYX_IN_PROGRESS);
        assert_int_equal(copy.calls[i].awaited, -1);
    }
}

static void
call_that_is_being_written_is_left_out(void **state)
{
    uint64_t serial = call_begin(1);
    (void)state;
    call_begin(2);
    atomic_store(&recorder.calls[serial % ULI_RECORDED_CALLS].serial, 0);
    assert_true(recorder_read());
    assert_int_equal(copy.ncalls, 1);
    assert_int_equal(copy.calls[0].number, 2);
}

static void
recorders_with_invalid_fields_are_not_read(void **state)
{
    (void)state;
    assert_false(uli_recorder_read(&recorder, sizeof(recorder) - 1, &copy));
    recorder.rank = 8;
    assert_false(recorder_read());
    recorder.rank = -1;
    assert_false(recorder_read());
    recorder.rank = 0;
    recorder.nranks = INT32_MAX;
    assert_false(recorder_read());
    recorder.nranks = 8;
    memset(recorder.name, 'x', sizeof(recorder.name)); /* no terminating zero */
    memset(recorder.host, 27, sizeof(recorder.host));
    uint64_t serial = call_begin(1);
    uli_recorder_await(&recorder, serial, 8);
    assert_true(recorder_read());
    assert_int_equal(strlen(copy.name), ULI_RECORDER_TEXT - 1);
    assert_int_equal(copy.host[0], '?');
    assert_int_equal(copy.calls[0].awaited, -1);
    atomic_store(&recorder.serial, UINT64_MAX);
    assert_true(recorder_read());
    assert_int_equal(copy.ncalls, 0);
    atomic_store(&recorder.magic, 0);
    assert_false(recorder_read());
}

/* ---- read while it is written -------------------------------------------- */

static atomic_bool stop;

static void *
write_calls(void *context)
{
    uint64_t number = 0;
    (void)context;
    while (!atomic_load(&stop))
        uli_recorder_end(&recorder, call_begin(number++), ULYX_SUCCESS, 77);
    return NULL;
}

static void
copies_are_whole_while_it_is_written(void **state)
{
    pthread_t writer;
    int seen = 0;
    (void)state;
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&writer, NULL, write_calls, NULL), 0);
    while (atomic_load(&recorder.serial) < ULI_RECORDED_CALLS)
        sched_yield();
    bool good = true;
    for (int i = 0; i < 20000; i++) {
        good = good && recorder_read();
        for (int k = 0; good && k < copy.ncalls; k++, seen++)
            good = copy.calls[k].plan == copy.calls[k].number + 1 &&
                   copy.calls[k].begun_ns == (int64_t)copy.calls[k].number + 2;
    }
    atomic_store(&stop, true);
    pthread_join(writer, NULL);
    assert_true(good);
    assert_true(seen > 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(calls_are_read_newest_first, recorder_new),
    cmocka_unit_test_setup(peers_that_a_call_misses_are_noted, recorder_new),
    cmocka_unit_test_setup(old_calls_make_room_and_stay_unmarked, recorder_new),
    cmocka_unit_test_setup(
        call_that_is_being_written_is_left_out, recorder_new),
    cmocka_unit_test_setup(
        recorders_with_invalid_fields_are_not_read, recorder_new),
    cmocka_unit_test_setup(copies_are_whole_while_it_is_written, recorder_new),
};

ULI_TEST_MAIN("Recorder", tests)
