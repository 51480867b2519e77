/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges that take several turns for each peer (ULI_TURN_BYTES): shapes
 * whose boxes end a turn between two rows, within a run that is longer than a
 * turn, and in the middle of a tensor. Every byte is compared with the obvious
 * placement, in windows and in a mixture of windows and ordinary memory, with
 * and without fan-outs; and a peer that becomes ready late catches up with the
 * peers before it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/dtype.h"
#include "collectives/exchange/exchange.h"
#include "collectives/exchange/copies.h"
#include "collectives/exchange/reshuffle_world.h"
#include "collectives/kernels/copy_text.h"
#include "support/ranks.h"
#include "support/test.h"

enum { LIMIT_S = 60, SEEDS = 1, WINDOW_BYTES = 256 << 20 };

/* ---- what is fanned out -------------------------------------------------- */

/* Counts the copies of the ranks, which are threads, and lets a test hold one
 * of them. */
void __real_uli_boxes_copy(const struct uli_fan_part *parts, int32_t count,
    struct uli_box_span span, const void *src, const struct uli_copy_way *way);
void __wrap_uli_boxes_copy(const struct uli_fan_part *parts, int32_t count,
    struct uli_box_span span, const void *src, const struct uli_copy_way *way);

void __real_uli_box_copy(const struct uli_box *box, struct uli_box_span span,
    void *dst, const void *src, const struct uli_copy_way *way);
void __wrap_uli_box_copy(const struct uli_box *box, struct uli_box_span span,
    void *dst, const void *src, const struct uli_copy_way *way);

static _Atomic int64_t fanned; /* boxes that were copied together */
static _Thread_local void (*on_copy)(int32_t count, struct uli_box_span span);

void
__wrap_uli_boxes_copy(const struct uli_fan_part *parts, int32_t count,
    struct uli_box_span span, const void *src, const struct uli_copy_way *way)
{
    assert_true(count > 1);
    atomic_fetch_add(&fanned, count);
    __real_uli_boxes_copy(parts, count, span, src, way);
    if (on_copy)
        on_copy(count, span);
}

void
__wrap_uli_box_copy(const struct uli_box *box, struct uli_box_span span,
    void *dst, const void *src, const struct uli_copy_way *way)
{
    __real_uli_box_copy(box, span, dst, src, way);
    if (on_copy)
        on_copy(1, span);
}

/* ---- shapes -------------------------------------------------------------- */

/* kv_heads = 1 gives each rank all KV rows, which are one run per peer. */
static const struct shape {
    const char *what;
    int32_t nranks;
    int64_t rows, heads, kv_heads, dim;
} shapes[] = {
    {"rows that no turn holds a whole number of", 3, 700, 3, 3, 601},
    {"runs longer than a turn", 2, 3001, 2, 1, 150},
    {"one row is longer than a turn", 2, 5, 2, 2, 140001},
    {"several peers", 4, 2003, 8, 4, 160},
};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

/* At least so many bytes of queries go from one rank to some peer; a turn or
 * less would test nothing here. */
static int64_t
bytes_of_a_peer(const struct shape *shape)
{
    return shape->rows / shape->nranks * (shape->heads / shape->nranks) *
           shape->dim * uli_dtype_size(ULYX_DTYPE_BF16);
}

static int
shape_body(int rank, int nranks, void *context)
{
    struct world *w = context;
    (void)nranks;
    return !(world_runs(w, rank) &&
             ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS));
}

static void
shape_run(const struct shape *shape, uint64_t seed)
{
    struct test_random random = {seed};
    struct world_ranks *ranks = calloc(1, sizeof(*ranks));
    struct world *w = calloc(1, sizeof(*w));
    assert_true(ranks && w);
    world_ranks_init_sized(ranks, shape->nranks, WINDOW_BYTES);
    for (int memory = 1; memory < 3; memory++) {
        memset(ranks->used, 0, sizeof(ranks->used));
        world_plain_case(w, shape->nranks, shape->rows, shape->heads,
            shape->kv_heads, shape->dim, ULYX_DTYPE_BF16);
        assert_true(world_draw(w, ranks, &random, memory));
        world_fill(w);
        int failed = ranks_run_threads(shape->nranks, shape_body, w, LIMIT_S);
        if (failed || !world_check(w))
            fail_msg("%s, memory %d, seed %llu: wrong bytes", shape->what,
                memory, (unsigned long long)seed);
        world_free(w);
    }
    world_ranks_free(ranks);
    free(w);
    free(ranks);
}

/* Writes a file for ULYX_CALIBRATE: the defaults, but for fan_bytes, and
 * without streaming stores, for which tensors would have to begin on lines. */
static void
choice_put(const char *path, int64_t fan_bytes)
{
    char text[ULI_COPY_TEXT];
    struct uli_copy_choice choice = *uli_copy_defaults();
    choice.fan_bytes = fan_bytes;
    choice.stream_bytes = INT64_MAX;
    size_t bytes = uli_copy_text_write(&choice, text);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

/* A temporary file that ULYX_CALIBRATE names until choice_end. */
static void
choice_begin(char path_p[32])
{
    strcpy(path_p, "/tmp/ulyx-turns-XXXXXX");
    int fd = mkstemp(path_p);
    assert_true(fd >= 0 && close(fd) == 0);
    setenv("ULYX_CALIBRATE", path_p, 1);
}

static void
choice_end(const char *path)
{
    unsetenv("ULYX_CALIBRATE");
    unlink(path);
}

static void
every_byte_arrives(void **state)
{
    (void)state;
    char path[32];
    choice_begin(path);
    for (int fans = 0; fans < 2; fans++) {
        choice_put(path, fans ? ULI_COPY_MEDIUM_BYTES : INT64_MAX);
        fanned = 0;
        for (int i = fans ? 0 : SHAPES - 1; i < SHAPES; i++) {
            assert_true(bytes_of_a_peer(&shapes[i]) > ULI_TURN_BYTES);
            for (uint64_t seed = 1; seed <= SEEDS; seed++)
                shape_run(&shapes[i], seed);
        }
        assert_int_equal(fanned > 0, fans);
    }
    choice_end(path);
}

/* ---- a late peer --------------------------------------------------------- */

enum { EARLY = 1, LATE = 2, RANKS = 3 };

/* What rank 0 has copied while ranks EARLY and LATE became ready one after the
 * other. */
static struct {
    ulyx_plan_t *plan; /* of rank 0 */
    uint64_t call;
    _Atomic bool begun; /* rank 0 has copied with EARLY */
    int64_t end;        /* runs that it had copied then */
    int64_t alone;      /* and has copied for LATE alone, later */
    bool together;      /* then for all */
} scene;

static bool
becomes_ready(int32_t p)
{
    for (int ms = 0; ms < LIMIT_S * 1000; ms++) {
        if (uli_flags_ready(scene.plan->exchange.pairs[p].mine, scene.call))
            return true;
        usleep(1000);
    }
    return false;
}

/* Of rank 0, which waits after its first copy until LATE is ready. */
static void
note_copy(int32_t count, struct uli_box_span span)
{
    if (!scene.begun) {
        scene.end = count == 2 ? span.end : -1;
        atomic_store(&scene.begun, true);
        if (!ranks_expect(becomes_ready(LATE)))
            scene.end = -1;
        return;
    }
    if (scene.together)
        return;
    if (count == 1 && span.begin == scene.alone)
        scene.alone = span.end;
    else
        scene.together = count == RANKS && scene.alone == scene.end &&
                         span.begin == scene.end;
}

static int
late_body(int rank, int nranks, void *context)
{
    struct world *w = context;
    (void)nranks;
    if (!ranks_expect(world_create(w, rank) == ULYX_SUCCESS))
        return 1;
    if (rank == 0) {
        scene.plan = w->plans[0];
        scene.call = scene.plan->exchange.call + 1;
        on_copy = note_copy;
    }
    if (rank == 0 && !ranks_expect(becomes_ready(EARLY)))
        return 1;
    for (int ms = 0; rank == LATE && !scene.begun && ms < LIMIT_S * 1000; ms++)
        usleep(1000);
    return !(ranks_expect(
                 world_execute(w, rank, ULYX_SEQ_TO_HEAD) == ULYX_SUCCESS) &&
             ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS));
}

static void
late_peer_catches_up(void **state)
{
    (void)state;
    struct test_random random = {1};
    struct world_ranks *ranks = calloc(1, sizeof(*ranks));
    struct world *w = calloc(1, sizeof(*w));
    assert_true(ranks && w);
    char path[32];
    choice_begin(path);
    choice_put(path, ULI_COPY_MEDIUM_BYTES);
    world_ranks_init_sized(ranks, RANKS, WINDOW_BYTES);
    world_plain_case(w, RANKS, 9000, 6, 6, 128, ULYX_DTYPE_BF16);
    w->all_dense = true;
    assert_true(world_draw(w, ranks, &random, 1));
    world_fill(w);
    memset(&scene, 0, sizeof(scene));
    assert_int_equal(ranks_run_threads(RANKS, late_body, w, LIMIT_S), 0);
    for (int32_t rank = 0; rank < RANKS; rank++)
        assert_true(world_check_rank(w, ULYX_SEQ_TO_HEAD, rank));
    assert_true(scene.end > 0);
    assert_int_equal(scene.alone, scene.end);
    assert_true(scene.together);
    world_free(w);
    world_ranks_free(ranks);
    free(w);
    free(ranks);
    choice_end(path);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_byte_arrives),
    cmocka_unit_test(late_peer_catches_up),
};

ULI_TEST_MAIN("ReshuffleTurns", tests)
