/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a tuning file; see tuning.h. Nothing of the file takes effect until
 * all of it has been read, so a file with an error changes nothing.
 */
#include "topology/choose/tuning.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "base/system/file.h"

enum { FILE_MAX_BYTES = 4 << 20 };

struct reader {
    const char *path;
    int32_t line;
    struct uli_model model;
    struct uli_tuning tuning;
    uint32_t named; /* a bit per class for which there was a line */
    uli_tuning_report report;
    void *context;
    ulyx_status_t status;
};

static void reader_finding(struct reader *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void
reader_finding(struct reader *r, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (r->report)
        r->report(r->context, r->line, text);
    if (r->status == ULYX_SUCCESS)
        r->status = uli_error(
            ULYX_ERR_INVALID_ARGUMENT, "%s:%d: %s", r->path, r->line, text);
}

/* ---- values -------------------------------------------------------------- */

struct unit {
    const char *name;
    double factor;
};

static const struct unit times[] = {
    {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {NULL, 0}};
static const struct unit rates[] = {{"ps/B", 1e-12}, {"ns/B", 1e-9}, {NULL, 0}};
static const struct unit plain[] = {
    {"", 1}, {"K", 1024}, {"M", 1048576}, {"G", 1073741824}, {NULL, 0}};

/* Reads a number of at least 0 with one of the units; 0 needs no unit. */
static bool
parse_value(const char *text, const struct unit *units, double *value_p)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || !isfinite(number) || number < 0 || text[0] == '-')
        return false;
    if (number == 0 && !*end) {
        *value_p = 0;
        return true;
    }
    for (; units->name; units++)
        if (strcmp(end, units->name) == 0) {
            *value_p = number * units->factor;
            return *value_p < 1e18;
        }
    return false;
}

/* "8" or "2-32"; an open end is "2-". */
static bool
parse_range(const char *text, struct uli_range *range_p)
{
    char low[32];
    double from, to = 0x1p60;
    size_t length = strcspn(text, "-");
    if (length >= sizeof(low))
        return false;
    snprintf(low, sizeof(low), "%.*s", (int)length, text);
    if (!parse_value(low, plain, &from))
        return false;
    if (!text[length])
        to = from;
    else if (text[length + 1] && !parse_value(text + length + 1, plain, &to))
        return false;
    *range_p = (struct uli_range){(int64_t)from, (int64_t)to};
    return from <= to;
}

/* ---- lines --------------------------------------------------------------- */

/* Splits "key=value": returns the value, and ends `word` after the key. NULL:
 * there is no "=". */
static char *
word_split(char *word)
{
    char *equals = strchr(word, '=');
    if (equals)
        *equals++ = 0;
    return equals;
}

static bool
parse_source(const char *text, enum uli_model_source *source_p)
{
    if (strcmp(text, "measured") == 0)
        *source_p = ULI_SOURCE_MEASURED;
    else if (strcmp(text, "assumed") == 0)
        *source_p = ULI_SOURCE_ASSUMED;
    else
        return false;
    return true;
}

/* Adds a point to a link's rates. Sizes must grow; the first point of a line
 * replaces all earlier points of the link. */
static bool
add_point(
    struct uli_model_link *link, double bytes, const char *text, bool first)
{
    double rate;
    if (first)
        link->npoints = 0;
    if (!parse_value(text, rates, &rate) || rate == 0 ||
        link->npoints == ULI_MODEL_POINTS ||
        (link->npoints > 0 && bytes <= link->bytes[link->npoints - 1]))
        return false;
    link->bytes[link->npoints] = bytes;
    link->s_per_byte[link->npoints++] = rate;
    return true;
}

static void
read_link_word(struct reader *r, struct uli_model_link *link, const char *key,
    const char *value, bool *has_points_p)
{
    struct {
        const char *name;
        double *field;
    } fields[] = {{"latency", &link->latency_s}, {"send", &link->send_s},
        {"receive", &link->receive_s}, {"gap", &link->gap_s}};
    double bytes;
    bool good = true;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (strcmp(key, fields[i].name) == 0) {
            if (!parse_value(value, times, fields[i].field))
                reader_finding(
                    r, "%s=%s: expected a time, as 4.1us", key, value);
            return;
        }
    if (strcmp(key, "source") == 0) {
        good = parse_source(value, &link->source);
    } else if (isdigit((unsigned char)key[0]) &&
               parse_value(key, plain, &bytes) && bytes > 0) {
        good = add_point(link, bytes, value, !*has_points_p);
        *has_points_p = true;
    } else {
        reader_finding(r, "unknown key %s", key);
    }
    if (!good)
        reader_finding(r, "%s=%s: expected %s", key, value,
            strcmp(key, "source") == 0
                ? "measured or assumed"
                : "a rate as 21.7ps/B, at most 8, sizes growing");
}

static void
read_link(struct reader *r, char **rest)
{
    const char *name = strtok_r(NULL, " \t", rest);
    int class = 0;
    bool has_points = false;
    while (name && class < ULI_MODEL_CLASSES &&
           strcmp(name, uli_model_class_name(class)) != 0)
        class ++;
    if (!name || class == ULI_MODEL_CLASSES) {
        reader_finding(r,
            "link %s: expected near, far, nvlink, pcie, nic or "
            "spine",
            name ? name : "");
        return;
    }
    struct uli_model_link *link = &r->model.links[class];
    link->source = ULI_SOURCE_FILE;
    r->named |= UINT32_C(1) << class;
    for (char *word; (word = strtok_r(NULL, " \t", rest));) {
        char *value = word_split(word);
        if (value)
            read_link_word(r, link, word, value, &has_points);
        else
            reader_finding(r, "%s: expected key=value", word);
    }
}

/* Reads a line "host" or "fabric". */
static void
read_numbers(struct reader *r, char **rest, bool host)
{
    double unit_nodes = (double)r->model.unit_nodes;
    struct {
        const char *name;
        double *field;
        const struct unit *units;
        double low;
        bool host;
    } rows[] = {{"launch", &r->model.launch_s, times, 0, true},
        {"handoff", &r->model.handoff_s, times, 0, true},
        {"taper", &r->model.taper, plain, 1e-3, false},
        {"efficiency", &r->model.efficiency, plain, 1e-3, false},
        {"unit_nodes", &unit_nodes, plain, 1, false},
        {"nics", &r->model.nics, plain, 1, false}};
    enum { ROWS = sizeof(rows) / sizeof(rows[0]) };
    *(host ? &r->model.host_source : &r->model.fabric_source) = ULI_SOURCE_FILE;
    for (char *word; (word = strtok_r(NULL, " \t", rest));) {
        char *value = word_split(word);
        int i = 0;
        while (i < ROWS && (rows[i].host != host || strcmp(word, rows[i].name)))
            i++;
        if (!value)
            reader_finding(r, "%s: expected key=value", word);
        else if (strcmp(word, "source") == 0) {
            if (!parse_source(value,
                    host ? &r->model.host_source : &r->model.fabric_source))
                reader_finding(
                    r, "source=%s: expected measured or assumed", value);
        } else if (i == ROWS)
            reader_finding(r, "unknown key %s", word);
        else if (!parse_value(value, rows[i].units, rows[i].field) ||
                 *rows[i].field < rows[i].low)
            reader_finding(r, "%s=%s: expected %s", word, value,
                host ? "a time, as 2us" : "a number above 0");
    }
    r->model.unit_nodes = (int64_t)fmin(unit_nodes, 0x1p40);
}

static void
read_rule_word(struct reader *r, struct uli_tuning_rule *rule, const char *key,
    const char *value)
{
    struct uli_range chunks = {0, 0};
    bool good = true;
    if (strcmp(key, "nodes") == 0)
        good = parse_range(value, &rule->nodes);
    else if (strcmp(key, "ranks_per_node") == 0)
        good = parse_range(value, &rule->ranks_per_node);
    else if (strcmp(key, "bytes") == 0)
        good = parse_range(value, &rule->bytes);
    else if (strcmp(key, "chunks") == 0)
        good = parse_range(value, &chunks) && chunks.low == chunks.high &&
               chunks.low >= 1 && chunks.low <= 1024;
    else
        reader_finding(
            r, "%s: expected nodes, ranks_per_node, bytes or chunks", key);
    if (chunks.low)
        rule->chunks = (int32_t)chunks.low;
    if (!good)
        reader_finding(r, "%s=%s: expected a number or low-high", key, value);
}

static void
read_rule(struct reader *r, char **rest)
{
    struct uli_range all = {0, INT64_MAX};
    struct uli_tuning_rule rule = {all, all, all, ULI_ALGOS, 0, r->line};
    char names[128];
    uli_algo_names(names, sizeof(names));
    for (char *word; (word = strtok_r(NULL, " \t", rest));) {
        char *value = word_split(word);
        if (value)
            read_rule_word(r, &rule, word, value);
        else if (strcmp(word, "->") != 0 && !uli_algo_parse(word, &rule.algo))
            reader_finding(r, "%s: expected %s", word, names);
    }
    if (rule.algo == ULI_ALGOS)
        reader_finding(r, "a rule without -> and a schedule");
    else if (r->tuning.nrules == ULI_TUNING_RULES)
        reader_finding(r, "more than %d rules", ULI_TUNING_RULES);
    else
        r->tuning.rules[r->tuning.nrules++] = rule;
}

static void
read_line(struct reader *r, char *line, bool *begun_p)
{
    char *rest = NULL;
    line[strcspn(line, "#\r\n")] = 0;
    const char *kind = strtok_r(line, " \t", &rest);
    if (!kind)
        return;
    if (!*begun_p) {
        const char *form = strtok_r(NULL, " \t", &rest);
        const char *version = strtok_r(NULL, " \t", &rest);
        *begun_p = true;
        if (strcmp(kind, "ulyx") != 0 || !form || strcmp(form, "tuning") != 0)
            reader_finding(r, "expected \"ulyx tuning 1\" first");
        else if (!version || strcmp(version, "1") != 0)
            reader_finding(r, "version %s of the form; 1 is read",
                version ? version : "(none)");
    } else if (strcmp(kind, "link") == 0) {
        read_link(r, &rest);
    } else if (strcmp(kind, "host") == 0 || strcmp(kind, "fabric") == 0) {
        read_numbers(r, &rest, kind[0] == 'h');
    } else if (strcmp(kind, "rule") == 0) {
        read_rule(r, &rest);
    } else {
        reader_finding(r, "%s: expected link, host, fabric or rule", kind);
    }
}

ulyx_status_t
uli_tuning_read(const char *path, struct uli_model *model,
    struct uli_tuning *tuning_p, uli_tuning_report report, void *context)
{
    struct reader r = {
        .path = path, .model = *model, .report = report, .context = context};
    char *text, *line, why[ULI_FILE_WHY];
    size_t bytes;
    ulyx_status_t status =
        uli_file_read(path, FILE_MAX_BYTES, &text, &bytes, why);
    if (status != ULYX_SUCCESS)
        return uli_error(status, "%s: %s", path, why);
    bool begun = false;
    char *at = text;
    while ((line = uli_file_next_line(&at, text + bytes))) {
        r.line++;
        read_line(&r, line, &begun);
    }
    free(text);
    if (!begun)
        reader_finding(&r, "an empty file: expected \"ulyx tuning 1\"");
    const uint32_t nic = UINT32_C(1) << ULI_MODEL_NIC;
    const uint32_t spine = UINT32_C(1) << ULI_MODEL_SPINE;
    if ((r.named & (nic | spine)) == nic)
        r.model.links[ULI_MODEL_SPINE] = r.model.links[ULI_MODEL_NIC];
    if (r.status == ULYX_SUCCESS) {
        *model = r.model;
        *tuning_p = r.tuning;
    }
    return r.status;
}
