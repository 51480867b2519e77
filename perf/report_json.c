/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON as perf/schema.json describes it. Of the environment only variables of
 * ours and of the libraries beside us are kept, and none that holds a secret.
 */
#include "report.h"

#include <jansson.h>
#include <string.h>
#include <time.h>

extern char **environ;

struct perf_json {
    json_t *root, *results;
};

static void
now(char *text_p, size_t bytes)
{
    time_t seconds = time(NULL);
    struct tm parts;

    gmtime_r(&seconds, &parts);
    strftime(text_p, bytes, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

static json_t *
environment(void)
{
    static const char *const prefixes[] = {
        "ULYX_", "UCX_", "NCCL_", "OMPI_MCA_", "CUDA_VISIBLE_DEVICES="};
    static const char *const secrets[] = {"ULYX_SECRET=", "ULYX_COMM_ID="};
    json_t *object = json_object();

    for (char **e = environ; *e != NULL; e++) {
        const char *equals = strchr(*e, '=');
        bool keep = false;

        for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
            keep = keep || !strncmp(*e, prefixes[i], strlen(prefixes[i]));
        for (size_t i = 0; i < sizeof(secrets) / sizeof(secrets[0]); i++)
            keep = keep && strncmp(*e, secrets[i], strlen(secrets[i])) != 0;
        if (keep && equals != NULL)
            json_object_set_new(object,
                json_string_value(json_stringn(*e, (size_t)(equals - *e))),
                json_string(equals + 1));
    }
    return object;
}

struct perf_json *
perf_json_open(
    const struct perf_options *o, int32_t nranks, int argc, char **argv)
{
    struct perf_json *json = calloc(1, sizeof(*json));
    json_t *arguments = json_array();
    char version[32], start[32];

    if (json == NULL)
        return NULL;
    for (int i = 0; i < argc; i++)
        json_array_append_new(arguments, json_string(argv[i]));
    snprintf(version, sizeof(version), "%d.%d.%d", ULYX_VERSION_MAJOR,
        ULYX_VERSION_MINOR, ULYX_VERSION_PATCH);
    now(start, sizeof(start));
    json->results = json_array();
    json->root = json_pack("{s:i, s:s, s:s, s:o, s:o, s:{s:i, s:i, s:i, s:I, "
                           "s:s, s:s, s:s, s:b, s:i, s:i, s:i, s:i}, s:o}",
        "schema", 1, "version", version, "start_time", start, "args", arguments,
        "env", environment(), "config", "ranks", (int)nranks, "threads",
        o->threads, "ranks_per_thread", o->ranks_per_thread, "batch",
        (json_int_t)o->batch, "dtype", o->dtype, "order", o->order, "split",
        o->split, "windows", o->register_memory, "iterations", o->iterations,
        "warmups", o->warmups, "aggregate", o->aggregate, "average", o->average,
        "results", json->results);
    return json;
}

void
perf_json_row(struct perf_json *json, const struct perf_row *row)
{
    const struct perf_stat *t = &row->time;
    json_t *object = json_pack("{s:s, s:s, s:I, s:I, s:I, s:s, s:I, "
                               "s:{s:f, s:f, s:f, s:f, s:f}, s:f, s:f, s:s}",
        "model", row->one->name, "op", perf_operation_name(row->one->operation),
        "seq", (json_int_t)row->seq, "size", (json_int_t)row->size_bytes,
        "count", (json_int_t)row->count, "type", row->type, "bus_bytes",
        (json_int_t)row->bus_bytes, "time_us", "median", t->median * 1e6,
        "mean", t->mean * 1e6, "min", t->minimum * 1e6, "p99", t->p99 * 1e6,
        "cv", t->cv, "alg_bw", row->algbw, "bus_bw", row->busbw, "plan",
        row->describe);

    json_object_set_new(object, "nwrong",
        row->wrong < 0 ? json_null() : json_integer(row->wrong));
    json_object_set_new(object, "vs_memcpy",
        row->has[PERF_VS_MEMCPY] ? json_real(row->ratio[PERF_VS_MEMCPY])
                                 : json_null());
    json_object_set_new(object, "vs_mpi",
        row->has[PERF_VS_MPI] ? json_real(row->ratio[PERF_VS_MPI])
                              : json_null());
    json_object_set_new(object, "vs_mpiw",
        row->has[PERF_VS_MPI] ? json_real(row->ratio_typed) : json_null());
    json_array_append_new(json->results, object);
}

bool
perf_json_close(
    struct perf_json *json, const char *path, int64_t wrong, double average)
{
    char end[32];
    bool ok = json != NULL && json->root != NULL;

    if (ok) {
        now(end, sizeof(end));
        json_object_set_new(json->root, "out_of_bounds", json_integer(wrong));
        json_object_set_new(
            json->root, "average_bus_bandwidth", json_real(average));
        json_object_set_new(json->root, "end_time", json_string(end));
        ok = json_dump_file(json->root, path, JSON_INDENT(2)) == 0;
    }
    if (!ok)
        fprintf(stderr, "ulyx_perf: -J %s: cannot be written\n", path);
    if (json != NULL)
        json_decref(json->root);
    free(json);
    return ok;
}
