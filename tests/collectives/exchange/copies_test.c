/* SPDX-License-Identifier: Apache-2.0
 *
 * How a communicator chooses its copies: off, a file, the user's cache, one
 * rank's measurement; and that no choice changes the bytes.
 */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "collectives/exchange/copies.h"
#include "collectives/kernels/copy_text.h"
#include "comm/meet.h"
#include "support/ranks.h"
#include "ulyx/ulyx.h"

enum { RANKS = 3, LIMIT_S = 60, TOKENS = 96, HEADS = 12, DIM = 64 };

/* ---- a measurement in the machine's place -------------------------------- */

struct measuring {
    int calls;
    bool over; /* whether the time ends before all is measured */
};
static struct measuring *measuring; /* shared by the ranks */

bool __wrap_uli_copy_measure(struct uli_copy_choice *choice_p);
bool
__wrap_uli_copy_measure(struct uli_copy_choice *choice_p)
{
    __atomic_add_fetch(&measuring->calls, 1, __ATOMIC_SEQ_CST);
    *choice_p = *uli_copy_defaults();
    choice_p->stream_bytes = 777777;
    return !measuring->over;
}

/* ---- a folder for the cache ---------------------------------------------- */

struct scene {
    char folder[64], file[96], cache[96];
};

/* Makes a temporary folder that serves as the user's cache. */
static struct scene
scene_open(void)
{
    struct scene scene = {.folder = "/tmp/ulyx-copies-XXXXXX"};
    assert_non_null(mkdtemp(scene.folder));
    snprintf(scene.file, sizeof(scene.file), "%s/file", scene.folder);
    snprintf(scene.cache, sizeof(scene.cache), "%s/ulyx", scene.folder);
    setenv("XDG_CACHE_HOME", scene.folder, 1);
    setenv("ULYX_CALIBRATE", "on", 1);
    measuring = ranks_shared(sizeof(*measuring));
    return scene;
}

static void
scene_close(const struct scene *scene)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", scene->folder);
    assert_int_equal(system(command), 0);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("ULYX_CALIBRATE");
    ranks_shared_free(measuring, sizeof(*measuring));
}

static void
file_put(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* Returns the number of files in the cache and stores their text. */
static int
cache_count(const struct scene *scene, char text_p[ULI_COPY_TEXT])
{
    char command[256];
    int count = 0;
    snprintf(command, sizeof(command),
        "ls '%s' 2>/dev/null | wc -l; cat '%s'/* 2>/dev/null", scene->cache,
        scene->cache);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_int_equal(fscanf(pipe, "%d\n", &count), 1);
    size_t bytes = fread(text_p, 1, ULI_COPY_TEXT - 1, pipe);
    text_p[bytes] = 0;
    pclose(pipe);
    return count;
}

/* ---- a call -------------------------------------------------------------- */

static ulyx_status_t
make_plan(ulyx_comm_t *comm, ulyx_plan_t **plan_p)
{
    ulyx_part_t tokens = ULYX_PART_INIT;
    ulyx_tensor_t tensor = ULYX_TENSOR_INIT;
    ulyx_plan_params_t params = ULYX_PLAN_PARAMS_INIT;
    tokens.rows = TOKENS;
    tensor.heads = HEADS;
    tensor.dim = DIM;
    tensor.dtype = ULYX_DTYPE_F32;
    params.heads = HEADS;
    params.parts = &tokens;
    params.nparts = 1;
    params.tensors = &tensor;
    params.ntensors = 1;
    return ulyx_plan_create(comm, &params, plan_p);
}

/* Moves values that encode token, head and element, there and back.
 * returns a hash of the received elements, or 0 after an error. */
static uint64_t
move_bytes(ulyx_comm_t *comm)
{
    static float seq[TOKENS * HEADS * DIM], head[TOKENS * HEADS * DIM];
    ulyx_plan_t *plan;
    uint64_t hash = 1469598103934665603u;
    if (!ranks_expect(make_plan(comm, &plan) == ULYX_SUCCESS))
        return 0;
    for (int i = 0; i < TOKENS * HEADS * DIM; i++)
        seq[i] = (float)(i * 5 + comm->rank);
    const void *src[] = {seq};
    void *dst[] = {head};
    memset(head, 0, sizeof(head));
    bool good = ranks_expect(ulyx_reshuffle_execute(plan, ULYX_SEQ_TO_HEAD, src,
                                 dst, NULL) == ULYX_SUCCESS);
    for (size_t i = 0; i < sizeof(head); i++)
        hash = (hash ^ ((unsigned char *)head)[i]) * 1099511628211u;
    good &= ranks_expect(ulyx_plan_destroy(plan) == ULYX_SUCCESS);
    return good ? hash : 0;
}

struct shared {
    struct meet *meet;
    struct uli_copy_choice choice[RANKS];
    uint64_t hash[RANKS];
    bool has[RANKS];
    uint32_t shown[RANKS];
    ulyx_status_t wanted;
    char error_text[64];
};

static int
rank_body(int rank, int nranks, void *context)
{
    struct shared *shared = context;
    ulyx_comm_t *comm;
    ulyx_plan_t *plan;
    (void)nranks;
    if (!ranks_expect(meet_comm(shared->meet, rank, 30, &comm) == ULYX_SUCCESS))
        return 1;
    if (shared->wanted != ULYX_SUCCESS) {
        bool refused = ranks_expect(make_plan(comm, &plan) == shared->wanted);
        refused = refused && ranks_expect(strstr(ulyx_last_error(),
                                              shared->error_text) != NULL);
        if (!refused)
            fprintf(stderr, "%s\n", ulyx_last_error());
        return !(
            refused && ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS));
    }
    shared->hash[rank] = move_bytes(comm);
    shared->has[rank] = comm->copies != NULL;
    shared->choice[rank] = *uli_copies_of(comm);
    shared->shown[rank] = comm->control->copies_bytes;
    return !(shared->hash[rank] != 0 &&
             ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS));
}

static struct shared *
run_ranks(ulyx_status_t wanted, const char *text)
{
    struct shared *shared = ranks_shared(sizeof(*shared));
    shared->meet = meet_new(RANKS);
    shared->wanted = wanted;
    snprintf(shared->error_text, sizeof(shared->error_text), "%s", text);
    assert_int_equal(ranks_run_processes(RANKS, rank_body, shared, LIMIT_S), 0);
    meet_free(shared->meet);
    return shared;
}

static void
shared_free(struct shared *shared)
{
    ranks_shared_free(shared, sizeof(*shared));
}

static bool
same_ways(const struct uli_copy_choice *a, const struct uli_copy_choice *b)
{
    bool same =
        a->stream_bytes == b->stream_bytes && a->fan_bytes == b->fan_bytes;
    for (int n = 0; n < ULI_COPY_SIZES * ULI_COPY_SOURCES; n++) {
        const struct uli_copy_way *x = &a->ways[0][0] + n;
        const struct uli_copy_way *y = &b->ways[0][0] + n;
        same = same && x->hint == y->hint && x->lanes == y->lanes &&
               x->ahead == y->ahead;
    }
    return same;
}

/* ---- tests --------------------------------------------------------------- */

static void
choice_is_measured_by_one_rank_and_kept(void **state)
{
    (void)state;
    struct scene scene = scene_open();
    char text[ULI_COPY_TEXT], why[ULI_COPY_WHY], again[ULI_COPY_TEXT];
    struct uli_copy_choice kept;
    struct shared *shared = run_ranks(ULYX_SUCCESS, "");
    assert_int_equal(cache_count(&scene, text), 1);
    assert_int_equal(measuring->calls, 1);
    assert_true(uli_copy_text_read(text, strlen(text), true, &kept, why));
    assert_int_equal(kept.stream_bytes, 777777);
    for (int r = 0; r < RANKS; r++) {
        assert_true(shared->has[r]);
        assert_true(same_ways(&shared->choice[r], &kept));
        assert_int_equal(shared->shown[r] != 0, r == 0);
    }
    shared_free(shared);
    /* The choice from the cache is used: the test has changed it in the
     * file. */
    char *stream = strstr(text, "stream 777777");
    assert_non_null(stream);
    memcpy(stream, "stream 123456", strlen("stream 123456"));
    char command[256];
    snprintf(command, sizeof(command),
        "sed -i 's/^stream .*/stream 123456/' '%s'/copies-*", scene.cache);
    assert_int_equal(system(command), 0);
    shared = run_ranks(ULYX_SUCCESS, "");
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(shared->choice[r].stream_bytes, 123456);
    assert_int_equal(measuring->calls, 1);
    shared_free(shared);
    assert_int_equal(cache_count(&scene, again), 1);
    assert_string_equal(again, text);
    scene_close(&scene);
}

static void
invalid_cache_is_measured_anew(void **state)
{
    (void)state;
    struct scene scene = scene_open();
    char text[ULI_COPY_TEXT], why[ULI_COPY_WHY], command[256];
    struct uli_copy_choice kept;
    shared_free(run_ranks(ULYX_SUCCESS, ""));
    snprintf(command, sizeof(command), "sed -i 's/apart/beside/' '%s'/copies-*",
        scene.cache);
    assert_int_equal(system(command), 0);
    shared_free(run_ranks(ULYX_SUCCESS, ""));
    assert_int_equal(cache_count(&scene, text), 1);
    assert_int_equal(measuring->calls, 2);
    assert_true(uli_copy_text_read(text, strlen(text), true, &kept, why));
    scene_close(&scene);
}

/* This process uses the partial measurement, and the next one measures
 * again. */
static void
choice_measured_in_part_is_not_kept(void **state)
{
    (void)state;
    struct scene scene = scene_open();
    char text[ULI_COPY_TEXT];
    measuring->over = true;
    for (int run = 1; run <= 2; run++) {
        struct shared *shared = run_ranks(ULYX_SUCCESS, "");
        for (int r = 0; r < RANKS; r++)
            assert_int_equal(shared->choice[r].stream_bytes, 777777);
        shared_free(shared);
        assert_int_equal(measuring->calls, run);
    }
    assert_int_equal(cache_count(&scene, text), 0);
    scene_close(&scene);
}

/* A file is in the place of the cache folder: no error, no message. */
static void
unwritable_cache_is_silent(void **state)
{
    (void)state;
    struct scene scene = scene_open();
    file_put(scene.cache, "in the way");
    struct shared *shared = run_ranks(ULYX_SUCCESS, "");
    for (int r = 0; r < RANKS; r++)
        assert_true(shared->has[r] &&
                    same_ways(&shared->choice[r], &shared->choice[0]));
    shared_free(shared);
    scene_close(&scene);
}

static void
calibration_off_takes_the_defaults(void **state)
{
    (void)state;
    struct scene scene = scene_open();
    char text[ULI_COPY_TEXT];
    setenv("ULYX_CALIBRATE", "off", 1);
    struct shared *shared = run_ranks(ULYX_SUCCESS, "");
    for (int r = 0; r < RANKS; r++)
        assert_true(same_ways(&shared->choice[r], uli_copy_defaults()));
    assert_int_equal(cache_count(&scene, text), 0);
    shared_free(shared);
    scene_close(&scene);
}

static void
unusable_file_is_named(void **state)
{
    (void)state;
    struct scene scene = scene_open();
    setenv("ULYX_CALIBRATE", scene.file, 1);
    shared_free(run_ranks(ULYX_ERR_INVALID_ARGUMENT, "No such file"));
    file_put(scene.file, "ulyx-copies 2\nsmall apart l7 4 16 0 0\n");
    shared_free(run_ranks(ULYX_ERR_INVALID_ARGUMENT, "line 2: \"small apart"));
    setenv("ULYX_CALIBRATE", scene.folder, 1);
    shared_free(run_ranks(ULYX_ERR_INVALID_ARGUMENT, "expected on, off or"));
    scene_close(&scene);
}

/* The bytes of a call are the same with every choice, streamed or not. */
static void
bytes_do_not_depend_on_the_choice(void **state)
{
    (void)state;
    struct scene scene = scene_open();
    static const char *const ways[] = {"none 1 0", "once 2 4", "once 8 64",
        "l2 4 16", "l2 8 0", "l1 2 256", "l1 4 8", "none 8 16"};
    setenv("ULYX_CALIBRATE", "off", 1);
    struct shared *usual = run_ranks(ULYX_SUCCESS, "");
    setenv("ULYX_CALIBRATE", scene.file, 1);
    for (size_t i = 0; i < 2 * sizeof(ways) / sizeof(ways[0]); i++) {
        char text[ULI_COPY_TEXT];
        const char *way = ways[i / 2];
        snprintf(text, sizeof(text),
            "ulyx-copies 2\nsmall apart %s 0 0\nsmall on %s 0 0\n"
            "small fan %s 0 0\nmedium apart %s 0 0\nmedium on %s 0 0\n"
            "medium fan %s 0 0\nlarge apart %s 0 0\nlarge on %s 0 0\n"
            "large fan %s 0 0\nstream %s\nfan %s\n",
            way, way, way, way, way, way, way, way, way, i % 2 ? "1" : "never",
            i % 2 ? "never" : "196608");
        file_put(scene.file, text);
        struct shared *forced = run_ranks(ULYX_SUCCESS, "");
        for (int r = 0; r < RANKS; r++) {
            assert_true(
                forced->choice[r].stream_bytes == (i % 2 ? 1 : INT64_MAX));
            assert_true(forced->hash[r] == usual->hash[r]);
        }
        shared_free(forced);
    }
    shared_free(usual);
    scene_close(&scene);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(choice_is_measured_by_one_rank_and_kept),
    cmocka_unit_test(invalid_cache_is_measured_anew),
    cmocka_unit_test(choice_measured_in_part_is_not_kept),
    cmocka_unit_test(unwritable_cache_is_silent),
    cmocka_unit_test(calibration_off_takes_the_defaults),
    cmocka_unit_test(unusable_file_is_named),
    cmocka_unit_test(bytes_do_not_depend_on_the_choice),
};

ULI_TEST_MAIN("Copies", tests)
