/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON as schema.json describes it. Of the environment, only variables of ulyx
 * and of the libraries that ulyx uses are written, and none that contains a
 * secret.
 */
#include "report.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern char **environ;

struct perf_json {
    json_t *root, *results;
    FILE *file;
    const char *path;
};

/* The words as a JSON string. Where words of the command line or the
 * environment are not UTF-8, their bytes beyond ASCII become '?'. */
static json_t *
json_text(const char *words)
{
    json_t *string = json_string(words);
    char copy[1024];

    if (string)
        return string;
    snprintf(copy, sizeof(copy), "%s", words);
    for (char *c = copy; *c != 0; c++)
        *c = (unsigned char)*c < 128 ? *c : '?';
    return json_string(copy);
}

static void
time_now(char *text_p, size_t bytes)
{
    time_t seconds = time(NULL);
    struct tm parts;

    gmtime_r(&seconds, &parts);
    strftime(text_p, bytes, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

static json_t *
environment_json(void)
{
    static const char *const prefixes[] = {
        "ULYX_", "UCX_", "NCCL_", "OMPI_MCA_", "CUDA_VISIBLE_DEVICES="};
    static const char *const secrets[] = {"ULYX_SECRET=", "ULYX_COMM_ID="};
    json_t *object = json_object();

    for (char **e = environ; *e; e++) {
        const char *equals = strchr(*e, '=');
        bool keep = false;
        char name[128];

        for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
            keep = keep || !strncmp(*e, prefixes[i], strlen(prefixes[i]));
        for (size_t i = 0; i < sizeof(secrets) / sizeof(secrets[0]); i++)
            keep = keep && strncmp(*e, secrets[i], strlen(secrets[i])) != 0;
        if (!keep || !equals || equals - *e >= (long)sizeof(name))
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)(equals - *e), *e);
        json_object_set_new(object, name, json_text(equals + 1));
    }
    return object;
}

struct perf_json *
perf_json_open(
    const struct perf_options *o, int32_t nranks, int argc, char **argv)
{
    struct perf_json *json = calloc(1, sizeof(*json));
    json_t *arguments;
    char start[32];

    if (!json)
        return NULL;
    json->path = o->json_file;
    json->file = fopen(json->path, "w");
    if (!json->file) {
        fprintf(stderr, "ulyx_perf: -J %s: %s\n", json->path, strerror(errno));
        free(json);
        return NULL;
    }
    arguments = json_array();
    for (int i = 0; i < argc; i++)
        json_array_append_new(arguments, json_text(argv[i]));
    time_now(start, sizeof(start));
    json->results = json_array();
    json->root = json_pack(
        "{s:i, s:s, s:s, s:o, s:o, s:{s:i, s:i, s:i, s:I, "
        "s:s, s:s, s:s, s:b, s:i, s:i, s:i, s:i, s:s, s:i}, s:o}",
        "schema", 2, "version", perf_version(), "start_time", start, "args",
        arguments, "env", environment_json(), "config", "ranks", (int)nranks,
        "threads", o->threads, "ranks_per_thread", o->ranks_per_thread, "batch",
        (json_int_t)o->batch, "dtype", o->dtype, "order", o->order, "work",
        o->work, "windows", o->register_memory, "iterations", o->iterations,
        "warmups", o->warmups, "aggregate", o->aggregate, "average", o->average,
        "memory", o->memory, "replays", o->replays, "results", json->results);
    return json;
}

void
perf_json_places(
    struct perf_json *json, const struct perf_place *places, int32_t nranks)
{
    json_t *devices = json_array();

    for (int32_t r = 0; r < nranks; r++)
        json_array_append_new(
            devices, json_pack("{s:i, s:I, s:o, s:I, s:i, s:i, s:o}", "rank",
                         (int)r, "pid", (json_int_t)places[r].pid, "host",
                         json_text(places[r].host), "thread",
                         (json_int_t)places[r].thread, "node",
                         (int)places[r].node, "cores", (int)places[r].cores,
                         "cpu", json_text(places[r].cpu)));
    json_object_set_new(json->root, "devices", devices);
}

static json_t *
json_percentiles(const struct perf_options *o, const struct perf_stat *t)
{
    json_t *object = json_object();
    char name[32];

    for (int p = 0; p < o->npercents; p++) {
        snprintf(name, sizeof(name), "%g", o->percents[p]);
        json_object_set_new(object, name, json_real(t->percentiles[p] * 1e6));
    }
    return object;
}

void
perf_json_row(struct perf_json *json, const struct perf_options *o,
    const struct perf_summary *summary, const struct perf_row *row)
{
    struct perf_fact facts[PERF_FACTS];
    int count = perf_row_facts(o, summary, row, facts);
    const struct perf_stat *t = &row->time;
    json_t *object = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:s, s:I, "
        "s:{s:f, s:f, s:f, s:f, s:f, s:f, s:o}, s:f, s:f, s:s}",
        "model", row->one->name, "op", perf_direction_name(row->one->direction),
        "seq", (json_int_t)row->seq, "size", (json_int_t)row->size_bytes,
        "count", (json_int_t)row->count, "type", row->one->dtype.name,
        "bus_bytes", (json_int_t)row->bus_bytes, "time_us", "median",
        t->median * 1e6, "mean", t->mean * 1e6, "min", t->minimum * 1e6, "max",
        t->maximum * 1e6, "p99", t->p99 * 1e6, "cv", t->cv, "percentiles",
        json_percentiles(o, t), "alg_bw", row->algbw, "bus_bw", row->busbw,
        "plan", row->describe);

    json_object_set_new(object, "nwrong",
        row->wrong < 0 ? json_null() : json_integer(row->wrong));
    for (int c = 0; c < PERF_COLUMNS; c++) {
        double ratio;
        bool has = perf_row_ratio(row, (enum perf_column)c, &ratio);

        json_object_set_new(
            object, perf_ratios[c].name, has ? json_real(ratio) : json_null());
    }
    for (int f = 0; f < count; f++)
        json_object_set_new(object, facts[f].name,
            facts[f].text ? json_text(facts[f].text)
                          : json_integer(facts[f].number));
    json_array_append_new(json->results, object);
}

bool
perf_json_close(struct perf_json *json, const struct perf_summary *summary)
{
    json_t *medians = json_object();
    char end[32];
    bool ok;

    time_now(end, sizeof(end));
    for (int c = 0; c < PERF_COLUMNS; c++)
        json_object_set_new(medians, perf_ratios[c].name,
            summary->has[c] ? json_real(summary->median[c]) : json_null());
    json_object_set_new(json->root, "median", medians);
    json_object_set_new(json->root, "out_of_bounds",
        summary->checked > 0 ? json_integer(summary->wrong) : json_null());
    json_object_set_new(
        json->root, "average_bus_bandwidth", json_real(summary->average));
    json_object_set_new(json->root, "end_time", json_string(end));
    ok = json_dumpf(json->root, json->file, JSON_INDENT(2)) == 0 &&
         fputc('\n', json->file) != EOF;
    ok = fclose(json->file) == 0 && ok;
    if (!ok)
        fprintf(stderr, "ulyx_perf: -J %s: %s\n", json->path, strerror(errno));
    json_decref(json->root);
    free(json);
    return ok;
}
