/* SPDX-License-Identifier: Apache-2.0
 *
 * Resolves the words of the command line, and refuses those that contradict
 * each other. An option that would have no effect is refused rather than
 * ignored.
 */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/model/schedule.h"

static bool
value_refuse(const char *name, const char *value, const char *known)
{
    return perf_reject("%s %s is unknown; known: %s", name, value, known);
}

/* Copies the next word of a list with commas into word_p, and moves *at_p
 * behind it; false at the end of the list. */
static bool
next_word(const char **at_p, char *word_p, size_t bytes)
{
    size_t length = *at_p ? strcspn(*at_p, ",") : 0;

    if (!*at_p)
        return false;
    snprintf(word_p, bytes, "%.*s", (int)length, *at_p);
    *at_p = (*at_p)[length] == ',' ? *at_p + length + 1 : NULL;
    return true;
}

/* ---- types and operations ------------------------------------------------ */

static const struct dtype_row {
    const char *name, *nccl; /* as typed, and nccl-tests' name of the type */
    ulyx_dtype_t code;
    int64_t bytes; /* of DTYPE_BYTES */
} dtypes[] = {{"bf16", "bfloat16", ULYX_DTYPE_BF16, 0},
    {"bfloat16", "bfloat16", ULYX_DTYPE_BF16, 0},
    {"f16", "half", ULYX_DTYPE_F16, 0}, {"half", "half", ULYX_DTYPE_F16, 0},
    {"f32", "float", ULYX_DTYPE_F32, 0}, {"float", "float", ULYX_DTYPE_F32, 0},
    {"f64", "double", ULYX_DTYPE_F64, 0},
    {"double", "double", ULYX_DTYPE_F64, 0},
    {"f8e4m3", "f8e4m3", ULYX_DTYPE_F8_E4M3, 0},
    {"f8e5m2", "f8e5m2", ULYX_DTYPE_F8_E5M2, 0},
    {"int8", "int8", ULYX_DTYPE_BYTES, 1},
    {"char", "int8", ULYX_DTYPE_BYTES, 1},
    {"uint8", "uint8", ULYX_DTYPE_BYTES, 1},
    {"int32", "int32", ULYX_DTYPE_BYTES, 4},
    {"int", "int32", ULYX_DTYPE_BYTES, 4},
    {"uint32", "uint32", ULYX_DTYPE_BYTES, 4},
    {"int64", "int64", ULYX_DTYPE_BYTES, 8},
    {"uint64", "uint64", ULYX_DTYPE_BYTES, 8}};
enum { DTYPE_ROWS = sizeof(dtypes) / sizeof(dtypes[0]) };

/* Can ulyx add elements of this type? Adjoints need it. */
static bool
can_add(ulyx_dtype_t code)
{
    return code != ULYX_DTYPE_BYTES && code < ULYX_DTYPE_F8_E4M3;
}

static bool
parse_dtype(
    const struct perf_options *o, const char *word, struct perf_dtype *dtype_p)
{
    double bytes;

    for (int i = 0; i < DTYPE_ROWS; i++) {
        const struct dtype_row *row = &dtypes[i];

        if (strcmp(word, row->name) != 0)
            continue;
        *dtype_p = (struct perf_dtype){.code = row->code,
            .bytes = row->bytes > 0 ? row->bytes : ulyx_dtype_size(row->code)};
        snprintf(dtype_p->name, sizeof(dtype_p->name), "%s",
            o->nccl_format ? row->nccl : row->name);
        return true;
    }
    if (!perf_number(word, false, &bytes) || bytes < 1 || bytes > 4096 ||
        bytes != (double)(int64_t)bytes)
        return value_refuse("--dtype", word,
            "bf16 f16 f32 f64 f8e4m3 f8e5m2, nccl-tests' names, or 1 to 4096");
    *dtype_p =
        (struct perf_dtype){.code = ULYX_DTYPE_BYTES, .bytes = (int64_t)bytes};
    snprintf(dtype_p->name, sizeof(dtype_p->name), "%.15s", word);
    return true;
}

static bool
check_dtypes(struct perf_options *o)
{
    bool all = strcmp(o->dtype, "all") == 0;
    const char *at = all ? "bf16,f16,f32,f64,f8e4m3,f8e5m2" : o->dtype;
    char word[32];

    while (next_word(&at, word, sizeof(word))) {
        if (o->ndtypes == PERF_DTYPES)
            return perf_reject("--dtype: more than %d types", PERF_DTYPES);
        if (!parse_dtype(o, word, &o->dtypes[o->ndtypes]))
            return false;
        if (!all && o->directions > 3 && !can_add(o->dtypes[o->ndtypes].code))
            return value_refuse(
                "--dtype", word, "bf16 f16 f32 f64, for adjoints");
        o->ndtypes++;
    }
    if (all && o->directions > 3)
        perf_note(o, "# adjoints add: they are left out for f8e4m3, f8e5m2\n");
    return true;
}

/* Is the word a reduction of nccl-tests? Wrappers give -o REDUCTION even where
 * nothing is reduced, and alltoall_perf accepts and ignores it. */
static bool
is_reduction(const char *word)
{
    static const char *const names[] = {
        "sum", "prod", "min", "max", "avg", "mulsum"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(word, names[i]) == 0)
            return true;
    return false;
}

static bool
check_direction(struct perf_options *o)
{
    static const char *const names[] = {"s2h", "h2s", "s2h_adj", "h2s_adj"};
    const char *usual = o->nccl_format ? "h2s" : "both";

    if (is_reduction(o->direction))
        perf_note(o, "# -o %s: nothing is reduced here; --op %s\n",
            o->direction, usual);
    if (is_reduction(o->direction) || !perf_option_given(o, "--op"))
        o->direction = usual;
    if (strcmp(o->direction, "both") == 0)
        o->directions = 3;
    else if (strcmp(o->direction, "all") == 0)
        o->directions = 15;
    for (int i = 0; i < ULYX_DIRECTIONS; i++)
        if (strcmp(o->direction, names[i]) == 0)
            o->directions = UINT64_C(1) << i;
    if (o->directions == 0)
        return value_refuse(
            "--op", o->direction, "s2h h2s both s2h_adj h2s_adj all");
    return true;
}

/* ---- schedules and percentiles ------------------------------------------- */

static bool
check_algos(struct perf_options *o)
{
    const char *at = o->algo;
    char word[sizeof(o->algos[0])];
    enum uli_algo algo;

    while (next_word(&at, word, sizeof(word))) {
        bool transport = !strcmp(word, "nccl") || !strcmp(word, "staged");

        if (strcmp(word, "auto") != 0 && !transport &&
            !uli_algo_parse(word, &algo))
            return value_refuse(
                "--algo", word, ULI_SCHEDULE_WORDS "nccl, staged, auto");
        if (transport && !o->cuda)
            return perf_reject("--algo %s needs --memory cuda", word);
        if (o->nalgos == PERF_ALGOS)
            return perf_reject("--algo: more than %d schedules", PERF_ALGOS);
        if (strcmp(word, "auto") == 0)
            word[0] = 0;
        for (int i = 0; i < o->nalgos; i++)
            if (strcmp(o->algos[i], word) == 0)
                return perf_reject(
                    "--algo %s: a schedule is named twice", o->algo);
        memcpy(o->algos[o->nalgos++], word, sizeof(word));
    }
    return true;
}

static bool
check_percentiles(struct perf_options *o)
{
    const char *at = o->percentiles;
    char word[32];

    while (next_word(&at, word, sizeof(word))) {
        double *percent = &o->percents[o->npercents];

        if (o->npercents == PERF_PERCENTILES)
            return perf_reject("--percentiles: more than %d", PERF_PERCENTILES);
        if (!perf_number(word, false, percent) || *percent <= 0 ||
            *percent > 100)
            return perf_reject("--percentiles %s: expected numbers above 0 and "
                               "at most 100, with commas",
                o->percentiles);
        o->npercents++;
    }
    return true;
}

/* ---- comparators and memory ---------------------------------------------- */

static const char *const versus_names[PERF_VERSUS] = {
    [PERF_VS_MEMCPY] = "memcpy",
    [PERF_VS_BEST] = "best",
    [PERF_VS_FLAG] = "flag",
    [PERF_VS_MPI] = "mpi",
    [PERF_VS_COPY] = "copy",
    [PERF_VS_PERMUTE] = "permute",
    [PERF_VS_NCCL] = "nccl"};

static bool
check_versus(struct perf_options *o)
{
    const char *at = o->versus;
    char word[16];

    while (next_word(&at, word, sizeof(word))) {
        int i = 0;

        while (i < PERF_VERSUS && strcmp(versus_names[i], word) != 0)
            i++;
        if (i == PERF_VERSUS)
            return value_refuse(
                "--vs", o->versus, "memcpy best flag mpi copy permute nccl");
        o->vs[i] = true;
    }
    return true;
}

/* A comparator works on host memory or on device memory, not on both. */
static bool
check_memory(struct perf_options *o)
{
    o->cuda = strcmp(o->memory, "cuda") == 0;
    if (!o->cuda && strcmp(o->memory, "host") != 0)
        return value_refuse("--memory", o->memory, "host cuda");
    if (o->replays > 0 && (!o->cuda || o->blocking == 1))
        return perf_reject(
            "--cudagraph needs --memory cuda and no --blocking 1");
    for (int v = 0; v < PERF_VERSUS; v++)
        if (o->vs[v] && o->cuda != (v >= PERF_VS_COPY))
            return perf_reject("--vs %s needs --memory %s", versus_names[v],
                o->cuda ? "host" : "cuda");
    if (o->copy_engine && !o->cuda)
        return perf_reject("--copy-engine needs --memory cuda");
    return true;
}

static bool
check_words(struct perf_options *o)
{
    if (!check_direction(o) || !check_dtypes(o) || !check_versus(o) ||
        !check_memory(o) || !check_algos(o) || !check_percentiles(o))
        return false;
    if (strcmp(o->order, "contiguous") && strcmp(o->order, "zigzag"))
        return value_refuse("--order", o->order, "contiguous zigzag");
    if (strcmp(o->work, "heads") && strcmp(o->work, "balanced"))
        return value_refuse("--work", o->work, "heads balanced");
    if (o->vs[PERF_VS_MPI] && o->threads * o->ranks_per_thread > 1)
        return perf_reject("--vs mpi needs one rank per process");
    return true;
}

/* Pairs of options of which one would silently be ignored. */
static bool
check_pairs(const struct perf_options *o)
{
    static const char *const pairs[][2] = {{"--model", "--heads"},
        {"--model", "--kv-heads"}, {"--model", "--dim"}, {"--model", "--dim-v"},
        {"--seq", "--minbytes"}, {"--seq", "--maxbytes"}, {"--seq", "--quick"},
        {"--seq", "--stepbytes"}, {"--seq", "--stepfactor"},
        {"--stepbytes", "--stepfactor"}, {"--csv", "--wide"},
        {"--nccl-format", "--csv"}, {"--nccl-format", "--wide"},
        {"--nccl-format", "--percentiles"}, {"--nccl-format", "--vs"}};

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        if (perf_option_given(o, pairs[i][0]) &&
            perf_option_given(o, pairs[i][1]))
            return perf_reject(
                "%s and %s exclude each other", pairs[i][0], pairs[i][1]);
    return true;
}

/* --tune determines all of its measurements itself. */
static bool
check_tune(const struct perf_options *o)
{
    static const char *const names[] = {"--csv", "--output_file", "--model",
        "--algo", "--op", "--dtype", "--datatype", "--vs", "--minbytes",
        "--maxbytes", "--seq", "--iters", "--dry-run", "--nccl-format",
        "--heads", "--kv-heads", "--dim", "--dim-v", "--batch", "--order",
        "--work", "--split", "--replicated", "--unalign", "--percentiles",
        "--per_iter", "--wide"};

    if (!o->tune)
        return true;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (perf_option_given(o, names[i]))
            return perf_reject("--tune and %s exclude each other", names[i]);
    if (o->cuda || o->ranks_per_thread > 1)
        return perf_reject("--tune needs host memory and one rank per thread");
    return true;
}

static bool
check_counts(const struct perf_options *o)
{
    int64_t ranks = (int64_t)(o->procs > 0 ? o->procs : 1) * o->threads *
                    o->ranks_per_thread;

    if (ranks > PERF_MAX_RANKS)
        return perf_reject(
            "%lld ranks are more than %d", (long long)ranks, PERF_MAX_RANKS);
    if (o->max_bytes < o->min_bytes)
        return perf_reject("-e %lld is below -b %lld", (long long)o->max_bytes,
            (long long)o->min_bytes);
    if (o->heads % (o->kv_heads > 0 ? o->kv_heads : 1) != 0)
        return perf_reject("--heads %lld is not a multiple of --kv-heads %lld",
            (long long)o->heads, (long long)o->kv_heads);
    if (o->cycles == 0 && o->json_file)
        return perf_reject("-N 0 never ends, so -J would never be written");
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
    if (o->nccl_format && !perf_option_given(o, "--dtype") &&
        !perf_option_given(o, "--datatype"))
        o->dtype = "float";
    o->progress = !o->progress; /* the flag turns it off */
    return check_pairs(o) && check_counts(o) && check_words(o) && check_tune(o);
}
