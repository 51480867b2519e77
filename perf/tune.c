/* SPDX-License-Identifier: Apache-2.0
 *
 * --tune, which every rank runs. It measures exchanges of two ranks of one
 * node, and of two ranks of different nodes, at thirteen sizes each; and
 * exchanges of as many pairs at once as a node has ranks, which shows how many
 * NICs the ranks of a node share. Rank 0 fits half of the sizes and writes the
 * file. Then rank 0 prints how well the file predicts the other half of the
 * sizes, and exchanges of all ranks together, which take no part in the fit.
 */
#include "tune.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"

enum { LEAST_ROWS = 2, PAIR_HEADS = 8, DIM = 64, ELEMENT = 2 };
#define BUDGET_S    0.25 /* for the iterations of a size */
#define LONGEST_S   2.0  /* for iterations that are needed to fill a link */
#define BLOCK_BYTES (1 << 20)

struct tune {
    struct perf_options options; /* of the measurements */
    struct perf_rank *rank;      /* in the communicator of all */
    const char *path;
    struct perf_tuning found;
};

struct perf_case
perf_tune_case(int32_t nranks)
{
    int64_t heads = nranks > PAIR_HEADS ? nranks : PAIR_HEADS;
    struct perf_case one = {.heads = heads,
        .kv_heads = heads,
        .dim_qk = DIM,
        .dim_v = DIM,
        .direction = ULYX_SEQ_TO_HEAD,
        .dtype = {"bf16", ULYX_DTYPE_BF16, ELEMENT}};

    snprintf(one.name, sizeof(one.name), "tune");
    return one;
}

/* ---- one size ------------------------------------------------------------ */

/* Chooses so many iterations that each of the ten blocks moves far more than a
 * link absorbs at once, in buffers of NICs and switches or in the burst of a
 * link with a limited rate. */
static void
choose_iterations(struct perf_options *options, double seconds, double bytes)
{
    double count = floor(BUDGET_S / fmax(seconds, 1e-7));
    double filling = 10 * ceil(BLOCK_BYTES / bytes);

    count = fmin(fmax(count, 3), 50);
    filling = fmin(filling, floor(LONGEST_S / fmax(seconds, 1e-7)));
    options->iterations = (int)fmax(count, filling);
}

/* Seconds of an exchange of `rows` rows per rank by all ranks of comm. */
static int
measure_exchange(const struct perf_options *options, ulyx_comm_t *comm,
    int64_t rows, const char *algo, double *seconds_p)
{
    const struct perf_case one = perf_tune_case(comm->nranks);
    struct perf_rank rank = {.rank = comm->rank,
        .nranks = comm->nranks,
        .comm = comm,
        .direction = one.direction};
    struct perf_shape shape;
    struct perf_row *row = calloc(1, sizeof(*row));
    int code = row ? PERF_LIBRARY : PERF_INTERNAL;

    perf_shape_fill(options, &one, rows * comm->nranks, comm->nranks, &shape);
    shape.params.algo = algo;
    rank.shape = &shape;
    if (row && perf_status_ok("plan",
                   ulyx_plan_create(comm, &shape.params, &rank.plans[0]))) {
        rank.nplans = 1;
        if (perf_rank_open(&rank, options))
            code = perf_measure(&rank, 1, options, row);
        perf_rank_close(&rank);
    }
    if (code == PERF_OK)
        *seconds_p = row->time.shown;
    free(row);
    return code;
}

/* ---- two ranks ----------------------------------------------------------- */

/* Makes a communicator of the ranks that give the same color >= 0; NULL for a
 * color < 0. */
static int
tune_split(struct tune *t, int color, ulyx_comm_t **comm_p)
{
    *comm_p = NULL;
    return perf_status_ok("split", ulyx_comm_split(t->rank->comm, color,
                                       t->rank->rank, NULL, comm_p))
               ? PERF_OK
               : PERF_LIBRARY;
}

static int
tune_measure_curve(
    const struct tune *t, ulyx_comm_t *pair, struct perf_curve *curve)
{
    struct perf_options options = t->options;
    double seconds;
    int code;

    options.iterations = 10; /* to learn how long an exchange takes */
    code = measure_exchange(&options, pair, LEAST_ROWS, "direct", &seconds);
    for (int i = 0; i < PERF_TUNE_SIZES && code == PERF_OK; i++) {
        curve->rows[i] = (int64_t)LEAST_ROWS << i;
        curve->bytes[i] =
            (double)(curve->rows[i] * 3 * (PAIR_HEADS / 2) * DIM * ELEMENT);
        choose_iterations(&options, seconds, curve->bytes[i]);
        code = measure_exchange(
            &options, pair, curve->rows[i], "direct", &curve->seconds[i]);
        seconds = 2 * curve->seconds[i];
    }
    return code;
}

/* Waits for all ranks, so that rank 0 has its results before they go on. */
static int
tune_meet(struct tune *t, int code)
{
    return perf_barrier(t->rank, 1) ? code : PERF_LIBRARY;
}

/* Measures the curve of the pair with color 0, while the other ranks wait. */
static int
tune_measure_pair(struct tune *t, int color, struct perf_curve *curve)
{
    ulyx_comm_t *pair;
    int code = tune_split(t, color, &pair);

    if (code == PERF_OK && pair)
        code = tune_measure_curve(t, pair, curve);
    if (pair)
        ulyx_comm_destroy(pair);
    return tune_meet(t, code);
}

/* Runs one pair per color at once, at the largest size, and sets
 * found.slowdown: the longest time of a pair divided by the time of one pair
 * alone. */
static int
tune_measure_abreast(struct tune *t, int color)
{
    const struct perf_curve *alone = &t->found.nic;
    const int64_t rows = (int64_t)LEAST_ROWS << (PERF_TUNE_SIZES - 1);
    struct perf_options options = t->options;
    size_t n = (size_t)t->rank->nranks;
    double own = 0, *all = calloc(n, sizeof(*all)), longest = 0;
    ulyx_comm_t *pair = NULL;
    int code = all ? tune_split(t, color, &pair) : PERF_INTERNAL;

    options.iterations = 10;
    if (code == PERF_OK && pair)
        code = measure_exchange(&options, pair, rows, "direct", &own);
    if (pair)
        ulyx_comm_destroy(pair);
    if (code == PERF_OK && !perf_gather(t->rank, 1, &own, sizeof(own), all))
        code = PERF_LIBRARY;
    for (size_t p = 0; code == PERF_OK && p < n; p++)
        longest = fmax(longest, all[p]);
    t->found.slowdown =
        longest / fmax(alone->seconds[PERF_TUNE_SIZES - 1], 1e-9);
    free(all);
    return code;
}

/* Index of the rank among the ranks of its node; *count_p: their number. */
static int32_t
place_of(const ulyx_comm_t *comm, int32_t rank, int32_t *count_p)
{
    int32_t place = 0;

    *count_p = 0;
    for (int32_t p = 0; p < comm->nranks; p++) {
        if (comm->peers[p].node != comm->peers[rank].node)
            continue;
        place += p < rank;
        ++*count_p;
    }
    return place;
}

static int32_t
ranks_of_node(const ulyx_comm_t *comm, int32_t node)
{
    int32_t count = 0;

    for (int32_t p = 0; p < comm->nranks; p++)
        count += comm->peers[p].node == node;
    return count;
}

static int
tune_measure_links(struct tune *t)
{
    const ulyx_comm_t *comm = t->rank->comm;
    int32_t node = comm->peers[comm->rank].node, mine;
    int32_t place = place_of(comm, comm->rank, &mine);
    int32_t first = ranks_of_node(comm, 0), second = ranks_of_node(comm, 1);
    int code = PERF_OK;

    t->found.has_near = first > 1;
    t->found.has_nic = comm->nnodes > 1;
    t->found.abreast = first < second ? first : second;
    if (t->found.has_near)
        code = tune_measure_pair(
            t, node == 0 && place < 2 ? 0 : -1, &t->found.near);
    if (code == PERF_OK && t->found.has_nic)
        code = tune_measure_pair(
            t, node < 2 && place == 0 ? 0 : -1, &t->found.nic);
    if (code == PERF_OK && t->found.abreast > 1)
        code = tune_measure_abreast(
            t, node < 2 && place < t->found.abreast ? (int)place : -1);
    return code;
}

/* ---- how good the file is ------------------------------------------------ */

struct errors {
    double all[64];
    int count;
};

/* With a larger error in the median, predictions are no basis for a choice,
 * because the times of two schedules may differ by less. Such errors come from
 * busy nodes, where waits for a core are taken for time of the link. */
static const double doubtful_error = 0.25;

static void
print_errors(const char *what, struct errors *e)
{
    if (e->count == 0)
        return;
    double median = perf_median(e->all, e->count);
    printf("# %s: error %.0f %% in the median, %.0f %% at worst of %d\n", what,
        100 * median, 100 * e->all[e->count - 1], e->count);
    if (median > doubtful_error)
        printf("# too much to choose schedules by: measure again on idle "
               "machines\n");
}

static void
print_line(const char *what, const char *algo, double bytes, double measured,
    double predicted, struct errors *e)
{
    double error = predicted / measured - 1;

    printf("# %-14s %-9s %12.0f %12.1f %12.1f %+7.0f %%\n", what, algo, bytes,
        measured * 1e6, predicted * 1e6, 100 * error);
    fflush(stdout);
    if (e->count < (int)(sizeof(e->all) / sizeof(e->all[0])))
        e->all[e->count++] = fabs(error);
}

/* Prints measurement and prediction for two ranks at the sizes that were held
 * out of the fit. */
static int
print_held_out(struct tune *t, const struct uli_planner *planner,
    const struct perf_curve *curve, const char *what, ulyx_comm_t *pair)
{
    struct errors errors = {.count = 0};

    for (int i = 1; i < PERF_TUNE_SIZES; i += 2) {
        double predicted = 0;

        if (!perf_status_ok(
                "prediction", perf_tune_predict(&t->options, pair, planner,
                                  curve->rows[i], "direct", &predicted)))
            return PERF_LIBRARY;
        print_line(what, "direct", curve->bytes[i], curve->seconds[i],
            predicted, &errors);
    }
    print_errors("sizes held out", &errors);
    return PERF_OK;
}

/* Measures and prints exchanges of all ranks together, with each schedule,
 * beside their predictions. */
static int
print_job(struct tune *t, const struct uli_planner *planner)
{
    static const int64_t rows[] = {16, 256, 2048};
    ulyx_comm_t *comm = t->rank->comm;
    const struct perf_case one = perf_tune_case(comm->nranks);
    struct errors errors = {.count = 0};
    int code = PERF_OK;

    for (int i = 0; i < ULI_ALGOS * 3 && code == PERF_OK; i++) {
        const char *algo = uli_algo_name((enum uli_algo)(i / 3));
        int64_t bytes = rows[i % 3] * 3 * one.heads * DIM * ELEMENT;
        double predicted = 0, measured = 0;

        if (comm->nnodes == 1 && i / 3 != ULI_ALGO_DIRECT)
            continue;
        if (perf_tune_predict(&t->options, comm, planner, rows[i % 3], algo,
                &predicted) != ULYX_SUCCESS)
            continue; /* hier, where nodes have too many ranks for it */
        choose_iterations(&t->options, 2 * predicted, (double)bytes);
        code =
            measure_exchange(&t->options, comm, rows[i % 3], algo, &measured);
        if (code == PERF_OK && comm->rank == 0)
            print_line(
                "all ranks", algo, (double)bytes, measured, predicted, &errors);
    }
    if (comm->rank == 0)
        print_errors("all ranks, not part of the fit", &errors);
    return code;
}

/* Makes the communicator of the pair again, since a prediction needs the nodes
 * of its ranks; measures nothing. */
static int
tune_judge_pair(struct tune *t, const struct uli_planner *planner, bool nic)
{
    const ulyx_comm_t *comm = t->rank->comm;
    int32_t node = comm->peers[comm->rank].node, mine;
    int32_t place = place_of(comm, comm->rank, &mine);
    bool in = nic ? node < 2 && place == 0 : node == 0 && place < 2;
    ulyx_comm_t *pair;
    int code = tune_split(t, in ? 0 : -1, &pair);

    if (code == PERF_OK && comm->rank == 0)
        code = print_held_out(t, planner, nic ? &t->found.nic : &t->found.near,
            nic ? "between nodes" : "within a node", pair);
    if (pair)
        ulyx_comm_destroy(pair);
    return code;
}

/* Checks at rank 0 that the file can be written, before anything is measured.
 * All ranks return the result of rank 0. */
static int
tune_check_file(struct tune *t)
{
    size_t n = (size_t)t->rank->nranks;
    int code = PERF_OK, *all = calloc(n, sizeof(*all));

    if (t->rank->rank == 0) {
        FILE *file = fopen(t->path, "ae");

        if (!file || fclose(file) != 0) {
            fprintf(
                stderr, "ulyx_perf: --tune %s: %s\n", t->path, strerror(errno));
            code = PERF_USAGE;
        }
    }
    if (!all || !perf_gather(t->rank, 1, &code, sizeof(code), all))
        code = PERF_LIBRARY;
    else
        code = all[0];
    free(all);
    return code;
}

/* Rank 0 writes the file, reads it again, and sends the model to all ranks, so
 * that all predict from the same file. */
static int
tune_share_planner(struct tune *t, struct uli_planner *planner)
{
    size_t n = (size_t)t->rank->nranks,
           bytes = sizeof(planner->model) + sizeof(int);
    unsigned char *mine = calloc(1, bytes), *all = calloc(n, bytes);
    int code = mine && all ? PERF_OK : PERF_INTERNAL;

    if (code == PERF_OK && t->rank->rank == 0) {
        code = perf_tune_write(t->path, &t->found);
        if (code == PERF_OK &&
            !perf_status_ok(t->path, uli_tuning_read(t->path, &planner->model,
                                         &planner->tuning, NULL, NULL)))
            code = PERF_INTERNAL;
    }
    if (mine && all) {
        memcpy(mine, &planner->model, sizeof(planner->model));
        memcpy(mine + sizeof(planner->model), &code, sizeof(code));
        if (!perf_gather(t->rank, 1, mine, bytes, all))
            code = PERF_LIBRARY;
        else if (code == PERF_OK) {
            memcpy(&planner->model, all, sizeof(planner->model));
            memcpy(&code, all + sizeof(planner->model), sizeof(code));
        }
    }
    free(mine);
    free(all);
    return code;
}

static int
tune_judge(struct tune *t)
{
    const struct perf_tuning *found = &t->found;
    struct uli_planner planner;
    int code;

    memset(&planner, 0, sizeof(planner));
    uli_model_defaults(&planner.model);
    uli_planner_apply(&planner, &t->rank->comm->settings);
    code = tune_share_planner(t, &planner);
    if (code == PERF_OK && t->rank->rank == 0) {
        printf("# %s written\n", t->path);
        if (found->has_nic && found->abreast > 1)
            printf("# %d ranks of a node at once: %.2f times the time of one\n",
                found->abreast, found->slowdown);
        printf("# %-14s %-9s %12s %12s %12s %9s\n", "", "schedule", "bytes",
            "measured us", "predicted us", "error");
    }
    if (code == PERF_OK && found->has_near)
        code = tune_judge_pair(t, &planner, false);
    if (code == PERF_OK && found->has_nic)
        code = tune_judge_pair(t, &planner, true);
    if (code == PERF_OK)
        code = print_job(t, &planner);
    if (code == PERF_OK && t->rank->rank == 0)
        printf("# ULYX_TUNING=%s uses it; ulyx_info tuning %s shows it\n",
            t->path, t->path);
    return code;
}

int
perf_tune(const struct perf_options *options, struct perf_rank *rank)
{
    const ulyx_comm_t *comm = rank->comm;
    struct tune t = {.options = *options, .rank = rank, .path = options->tune};
    const struct uli_peer *last = &comm->peers[comm->nranks - 1];
    int code;

    if (comm->nranks < 2) {
        fprintf(stderr, "ulyx_perf: --tune needs two ranks or more\n");
        return PERF_USAGE;
    }
    t.options.check = 0;
    t.options.aggregate = 1;
    snprintf(t.found.between, sizeof(t.found.between),
        "%d ranks on %d node%s, %.40s to %.40s", comm->nranks, comm->nnodes,
        comm->nnodes > 1 ? "s" : "", comm->peers[0].identity.host,
        last->identity.host);
    if (comm->rank == 0) {
        printf("# ulyx_perf --tune: %s\n", t.found.between);
        fflush(stdout);
    }
    code = tune_check_file(&t);
    if (code == PERF_OK)
        code = tune_measure_links(&t);
    return code == PERF_OK ? tune_judge(&t) : code;
}
