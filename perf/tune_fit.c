/* SPDX-License-Identifier: Apache-2.0
 *
 * Fits the links of a tuning file to measured exchanges of two ranks, and
 * predicts exchanges from such a file.
 *
 * A link is a latency L and, at each knot, the remaining seconds per byte:
 *     T(B) = L + B rate(B)
 * L is the time at zero bytes on the line through the two smallest knots, but
 * at least a tenth of the smallest time. Every second size is a knot; the sizes
 * between are held out, to show how well the file predicts sizes that were not
 * fitted. A longer message is assumed to take no less time: where noise makes
 * the measured time of a knot smaller, the fit uses the longest time of the
 * smaller knots.
 *
 * L contains launch and hand-off. A fabric is assumed to have no taper, as only
 * these nodes were measured.
 */
#include "tune.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/plan/plan_choose.h"
#include "comm/comm.h"

enum { LEAST_PS = 1 }; /* least ps per byte, 1 TB/s: a file may not have 0 */

static void
write_link(FILE *file, const char *name, const struct perf_curve *c)
{
    double slope =
        (c->seconds[2] - c->seconds[0]) / (c->bytes[2] - c->bytes[0]);
    double latency = c->seconds[0] - fmax(slope, 0) * c->bytes[0], longest = 0;

    latency = fmax(latency, 0.1 * c->seconds[0]);
    fprintf(file, "link %s latency=%.2fus send=0us receive=0us gap=0us", name,
        latency * 1e6);
    for (int i = 0; i < PERF_TUNE_SIZES; i += 2) {
        longest = fmax(longest, c->seconds[i]);
        fprintf(file, " %.0f=%.2fps/B", c->bytes[i],
            fmax((longest - latency) / c->bytes[i] * 1e12, LEAST_PS));
    }
    fprintf(file, " source=measured\n");
}

/* The number of NICs of a node: ranks that slow each other down share one. */
static int32_t
count_nics(const struct perf_tuning *t)
{
    double nics = floor(t->abreast / fmax(t->slowdown, 1e-9) + 0.5);

    return (int32_t)fmin(fmax(nics, 1), t->abreast);
}

static void
write_all(FILE *file, const struct perf_tuning *t)
{
    fprintf(file,
        "ulyx tuning 1\n# measured by ulyx_perf %d.%d.%d --tune: %s\n",
        ULYX_VERSION_MAJOR, ULYX_VERSION_MINOR, ULYX_VERSION_PATCH, t->between);
    fprintf(file, "host launch=0us handoff=0us source=measured\n");
    if (t->has_near)
        write_link(file, "near", &t->near);
    if (!t->has_nic)
        return;
    write_link(file, "nic", &t->nic);
    if (t->abreast > 1)
        fprintf(file,
            "# %d ranks of a node at once take %.2f times the time of one\n",
            t->abreast, t->slowdown);
    else
        fprintf(file, "# measured with one rank of a node: several would share "
                      "its NIC\n");
    fprintf(file, "fabric taper=1 efficiency=1 nics=%d source=measured\n",
        count_nics(t));
}

int
perf_tune_write(const char *path, const struct perf_tuning *tuning)
{
    FILE *file = fopen(path, "we");
    bool ok = file != NULL;

    if (ok)
        write_all(file, tuning);
    ok = ok && !ferror(file);
    if (file && fclose(file) != 0)
        ok = false;
    if (!ok)
        fprintf(stderr, "ulyx_perf: --tune %s: %s\n", path, strerror(errno));
    return ok ? PERF_OK : PERF_INTERNAL;
}

ulyx_status_t
perf_tune_predict(const struct perf_options *options,
    const struct ulyx_comm *comm, const struct uli_planner *planner,
    int64_t rows, const char *algo, double *seconds_p)
{
    const struct uli_plan_preference preference = {
        UINT64_C(1) << ULYX_SEQ_TO_HEAD, 0, algo, comm->one_machine};
    const struct perf_case one = perf_tune_case(comm->nranks);
    struct perf_shape shape;
    struct uli_choice choice;
    struct uli_layout *layout = NULL;
    int32_t *node_of = calloc((size_t)comm->nranks, sizeof(*node_of));
    ulyx_status_t status = ULYX_ERR_NO_MEMORY;

    perf_shape_fill(options, &one, rows * comm->nranks, comm->nranks, &shape);
    if (node_of)
        status = uli_layout_create(&shape.internal, NULL, NULL, &layout);
    for (int32_t p = 0; status == ULYX_SUCCESS && p < comm->nranks; p++)
        node_of[p] = comm->peers[p].node;
    if (status == ULYX_SUCCESS)
        status = uli_plan_choose(
            layout, comm->nnodes, node_of, &preference, planner, &choice);
    if (status == ULYX_SUCCESS)
        *seconds_p = choice.best.predictions[ULYX_SEQ_TO_HEAD].time_s;
    if (layout)
        uli_layout_destroy(layout);
    free(node_of);
    return status;
}
