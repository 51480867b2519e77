/* SPDX-License-Identifier: Apache-2.0
 *
 * What the words of the command line mean, and which do not go together. An
 * option that would have no effect is refused rather than ignored.
 */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool
refuse(const char *name, const char *value, const char *known)
{
    fprintf(
        stderr, "ulyx_perf: %s %s is unknown; known: %s\n", name, value, known);
    return false;
}

static bool
check_dtype(struct perf_options *o)
{
    static const struct {
        const char *name;
        ulyx_dtype_t code;
    } names[] = {{"bf16", ULYX_DTYPE_BF16}, {"bfloat16", ULYX_DTYPE_BF16},
        {"f16", ULYX_DTYPE_F16}, {"half", ULYX_DTYPE_F16},
        {"f32", ULYX_DTYPE_F32}, {"float", ULYX_DTYPE_F32},
        {"f64", ULYX_DTYPE_F64}, {"double", ULYX_DTYPE_F64},
        {"f8e4m3", ULYX_DTYPE_F8_E4M3}, {"f8e5m2", ULYX_DTYPE_F8_E5M2}};
    double bytes;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(o->dtype, names[i].name) == 0) {
            o->dtype_code = names[i].code;
            return true;
        }
    o->dtype_code = ULYX_DTYPE_BYTES;
    if (perf_number(o->dtype, false, &bytes) && bytes >= 1 && bytes <= 4096)
        return true;
    return refuse(
        "--dtype", o->dtype, "bf16 f16 f32 f64 f8e4m3 f8e5m2, or 1 to 4096");
}

static bool
check_operation(struct perf_options *o)
{
    static const char *const names[] = {"s2h", "h2s", "s2h_adj", "h2s_adj"};

    if (strcmp(o->operation, "both") == 0)
        o->operations = 3;
    else if (strcmp(o->operation, "all") == 0)
        o->operations = 15;
    for (int i = 0; i < ULYX_OPERATIONS; i++)
        if (strcmp(o->operation, names[i]) == 0)
            o->operations = UINT64_C(1) << i;
    if (o->operations == 0)
        return refuse("--op", o->operation, "s2h h2s both s2h_adj h2s_adj all");
    if ((o->dtype_code == ULYX_DTYPE_BYTES ||
            o->dtype_code >= ULYX_DTYPE_F8_E4M3) &&
        o->operations > 3)
        return refuse("--dtype", o->dtype, "bf16 f16 f32 f64, for adjoints");
    return true;
}

static const char *const versus_names[PERF_VERSUS] = {
    [PERF_VS_MEMCPY] = "memcpy",
    [PERF_VS_MPI] = "mpi",
    [PERF_VS_COPY] = "copy",
    [PERF_VS_PERMUTE] = "permute",
    [PERF_VS_NCCL] = "nccl"};

static bool
check_versus(struct perf_options *o)
{
    const char *at = o->versus;

    while (at != NULL && *at != 0) {
        size_t length = strcspn(at, ",");
        int i = 0;

        while (
            i < PERF_VERSUS && (strlen(versus_names[i]) != length ||
                                   strncmp(at, versus_names[i], length) != 0))
            i++;
        if (i == PERF_VERSUS)
            return refuse("--vs", o->versus, "memcpy mpi copy permute nccl");
        o->vs[i] = true;
        at += length + (at[length] == ',');
    }
    return true;
}

/* Each comparator is of one kind of memory. */
static bool
check_memory(struct perf_options *o)
{
    o->cuda = strcmp(o->memory, "cuda") == 0;
    if (!o->cuda && strcmp(o->memory, "host") != 0)
        return refuse("--memory", o->memory, "host cuda");
    if (o->replays > 0 && (!o->cuda || o->blocking == 1)) {
        fprintf(stderr, "ulyx_perf: --cudagraph wants --memory cuda and no "
                        "--blocking 1\n");
        return false;
    }
    for (int v = 0; v < PERF_VERSUS; v++)
        if (o->vs[v] && o->cuda != (v >= PERF_VS_COPY)) {
            fprintf(stderr, "ulyx_perf: --vs %s wants --memory %s\n",
                versus_names[v], o->cuda ? "host" : "cuda");
            return false;
        }
    if (o->copy_engine && !o->cuda) {
        fprintf(stderr, "ulyx_perf: --copy-engine wants --memory cuda\n");
        return false;
    }
    return true;
}

static bool
check_words(struct perf_options *o)
{
    if (!check_dtype(o) || !check_operation(o) || !check_versus(o) ||
        !check_memory(o))
        return false;
    if (strcmp(o->order, "contiguous") && strcmp(o->order, "zigzag"))
        return refuse("--order", o->order, "contiguous zigzag");
    if (strcmp(o->split, "heads") && strcmp(o->split, "balanced"))
        return refuse("--split", o->split, "heads balanced");
    if (o->vs[PERF_VS_MPI] && o->threads * o->ranks_per_thread > 1) {
        fprintf(stderr, "ulyx_perf: --vs mpi wants one rank a process\n");
        return false;
    }
    return true;
}

/* Pairs of which one would silently win. */
static bool
check_pairs(const struct perf_options *o)
{
    static const char *const pairs[][2] = {{"--model", "--heads"},
        {"--model", "--kv-heads"}, {"--model", "--dim"}, {"--model", "--dim-v"},
        {"--seq", "--minbytes"}, {"--seq", "--maxbytes"}, {"--seq", "--quick"},
        {"--seq", "--stepbytes"}, {"--seq", "--stepfactor"},
        {"--stepbytes", "--stepfactor"}, {"--csv", "--wide"}};

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        if (perf_option_given(o, pairs[i][0]) &&
            perf_option_given(o, pairs[i][1])) {
            fprintf(stderr, "ulyx_perf: %s and %s do not go together\n",
                pairs[i][0], pairs[i][1]);
            return false;
        }
    return true;
}

static bool
check_counts(const struct perf_options *o)
{
    int64_t ranks = (int64_t)(o->procs > 0 ? o->procs : 1) * o->threads *
                    o->ranks_per_thread;

    if (ranks > PERF_MAX_RANKS) {
        fprintf(stderr, "ulyx_perf: %lld ranks are more than %d\n",
            (long long)ranks, PERF_MAX_RANKS);
        return false;
    }
    if (o->max_bytes < o->min_bytes) {
        fprintf(stderr, "ulyx_perf: -e %lld is below -b %lld\n",
            (long long)o->max_bytes, (long long)o->min_bytes);
        return false;
    }
    if (o->heads % (o->kv_heads > 0 ? o->kv_heads : 1) != 0) {
        fprintf(stderr,
            "ulyx_perf: --heads %lld is not a multiple of --kv-heads %lld\n",
            (long long)o->heads, (long long)o->kv_heads);
        return false;
    }
    if (o->cycles == 0 && o->json_file != NULL) {
        fprintf(stderr,
            "ulyx_perf: -N 0 never ends, so -J would never be written\n");
        return false;
    }
    return true;
}

bool
perf_options_complete(struct perf_options *o)
{
    bool sizes = perf_option_given(o, "--minbytes") ||
                 perf_option_given(o, "--maxbytes");

    if (o->kv_heads == 0)
        o->kv_heads = o->heads;
    if (o->dim_v == 0)
        o->dim_v = o->dim;
    if (o->quick && !sizes)
        o->min_bytes = o->max_bytes = 8 << 20;
    else if (!perf_option_given(o, "--maxbytes") && o->max_bytes < o->min_bytes)
        o->max_bytes = o->min_bytes;
    else if (!perf_option_given(o, "--minbytes") && o->max_bytes < o->min_bytes)
        o->min_bytes = o->max_bytes;
    if (o->quick && !perf_option_given(o, "--iters"))
        o->iterations = 10;
    o->progress = !o->progress; /* the flag says no */
    return check_pairs(o) && check_counts(o) && check_words(o);
}
