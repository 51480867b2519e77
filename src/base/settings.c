/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings are first gathered as text, each with its source, and then parsed.
 * So a bad value is an error only if no later source replaces it, and the log's
 * own settings can be read before there is a log.
 */
#include "base/settings.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/log.h"
#include "base/size.h"
#include "base/status.h"
#include "base/system/file.h"

#define SYSTEM_FILE "/etc/ulyx.conf"
#define USER_FILE   ".config/ulyx.conf"
#define PREFIX      "ULYX_"

enum { FILE_MAX_BYTES = 1 << 20 };

extern char **environ;

static const struct uli_setting_row rows[] = {
#define ROW(name, field, TYPE, def, min, max, help)                            \
    {#name, def, help, offsetof(struct uli_settings, field),                   \
        ULI_SETTING_##TYPE, (double)(min), (double)(max)},
    ULI_SETTINGS_MAP(ROW)
#undef ROW
};

#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

/* One setting before it is parsed. */
struct text {
    char value[ULI_SETTING_TEXT];
    const char *source;
};

struct gathered {
    struct text texts[ROW_COUNT];
    bool warn; /* about names that do not exist */
};

const struct uli_setting_row *
uli_settings_rows(size_t *count_p)
{
    *count_p = ROW_COUNT;
    return rows;
}

static size_t
find_row(const char *name)
{
    size_t i = 0;
    while (i < ROW_COUNT && strcmp(rows[i].name, name))
        i++;
    return i;
}

/* ---- unknown names ------------------------------------------------------- */

/* The number of insertions, deletions and replacements that turn a into b.
 * Names have fewer than 64 characters. */
static size_t
edit_distance(const char *a, const char *b)
{
    size_t row[64];
    size_t length = strlen(b);
    if (length >= 64)
        return SIZE_MAX;
    for (size_t j = 0; j <= length; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= length; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            size_t shorter = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replaced < shorter ? replaced : shorter;
        }
    }
    return row[length];
}

static void
warn_unknown(const char *name, const char *source)
{
    const char *nearest = rows[0].name;
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < ROW_COUNT; i++) {
        size_t distance = edit_distance(name, rows[i].name);
        if (distance < best) {
            best = distance;
            nearest = rows[i].name;
        }
    }
    ULI_WARN(ULI_LOG_ENV, -1,
        "%s (%s) is not a setting of ulyx; the nearest is %s", name, source,
        nearest);
}

/* Variables of the test programs, of the tools and of the Python package
 * (ULYX_LIBRARY: which library it loads) are not the library's. */
static bool
is_foreign(const char *name)
{
    return strncmp(name, "ULYX_TEST_", 10) == 0 ||
           strncmp(name, "ULYX_PERF_", 10) == 0 ||
           strncmp(name, "ULYX_PYTHON_", 12) == 0 ||
           strcmp(name, "ULYX_LIBRARY") == 0;
}

/* ---- gathering ----------------------------------------------------------- */

/* A value that is too long is cut; the parser then refuses the value. */
static void
set_text(
    struct gathered *all, size_t row, const char *value, const char *source)
{
    struct text *text = &all->texts[row];
    snprintf(text->value, sizeof(text->value), "%s", value);
    text->source = source;
}

static char *
settings_trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        end--;
    *end = 0;
    return text;
}

static void
gather_line(struct gathered *all, char *line, const char *path)
{
    char *name = settings_trim(line);
    if (!*name || *name == '#')
        return;
    char *equals = strchr(name, '=');
    if (equals)
        *equals = 0;
    name = settings_trim(name);
    size_t row = find_row(name);
    if (equals && row < ROW_COUNT)
        set_text(all, row, settings_trim(equals + 1), path);
    else if (equals && all->warn && !is_foreign(name))
        warn_unknown(name, path);
    else if (!equals && all->warn)
        ULI_WARN(ULI_LOG_ENV, -1, "%s: \"%s\" is not NAME=VALUE", path, name);
}

static void
gather_file(struct gathered *all, const char *path)
{
    char *text, why[ULI_FILE_WHY];
    size_t bytes;
    if (!path)
        return;
    if (uli_file_read(path, FILE_MAX_BYTES, &text, &bytes, why)) {
        if (errno != ENOENT && errno != ENOTDIR && all->warn)
            ULI_WARN(ULI_LOG_ENV, -1, "%s: %s", path, why);
        return;
    }
    char *at = text, *line;
    while ((line = uli_file_next_line(&at, text + bytes)))
        gather_line(all, line, path);
    free(text);
}

static void
gather_environment(struct gathered *all)
{
    for (size_t i = 0; i < ROW_COUNT; i++) {
        const char *value = getenv(rows[i].name);
        if (value)
            set_text(all, i, value, "environment");
    }
    for (char **entry = environ; all->warn && entry && *entry; entry++) {
        char name[128];
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*entry, "="), *entry);
        if (strncmp(name, PREFIX, strlen(PREFIX)) == 0 && !is_foreign(name) &&
            find_row(name) == ROW_COUNT)
            warn_unknown(name, "environment");
    }
}

static void
gathered_gather(
    struct gathered *all, const char *system_file, const char *user_file)
{
    for (size_t i = 0; i < ROW_COUNT; i++) {
        set_text(all, i, rows[i].default_text, "default");
        if (rows[i].type == ULI_SETTING_CHOICE)
            all->texts[i].value[strcspn(rows[i].default_text, "|")] = 0;
    }
    gather_file(all, system_file);
    gather_file(all, user_file);
    gather_environment(all);
}

/* ---- parsing ------------------------------------------------------------- */

static bool
parse_bool(const char *text, bool *value_p)
{
    static const char *const words[] = {
        "0", "1", "no", "yes", "off", "on", "false", "true"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *value_p = i & 1;
            return true;
        }
    }
    return false;
}

/* Copies the word of "a|b|c" that equals text, ignoring case; false if there is
 * none. */
static bool
parse_choice(const char *text, const char *words, char *field)
{
    size_t length;
    for (;; words += length + 1) {
        length = strcspn(words, "|");
        if (strlen(text) == length && strncasecmp(text, words, length) == 0) {
            snprintf(field, ULI_SETTING_TEXT, "%.*s", (int)length, words);
            return true;
        }
        if (!words[length])
            return false;
    }
}

static bool
in_range(double value, const struct uli_setting_row *row)
{
    return value >= row->min && value <= row->max;
}

static bool
parse_int(const char *text, const struct uli_setting_row *row, int64_t *value_p)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || errno)
        return false;
    int64_t value = number;
    if (row->type == ULI_SETTING_BYTES && *end) {
        static const char suffixes[] = "KMGT";
        const char *suffix = strchr(suffixes, toupper((unsigned char)*end));
        int64_t unit =
            suffix ? INT64_C(1) << (10 * (suffix - suffixes + 1)) : 0;
        if (!suffix || !uli_size_mul(number, unit, &value))
            return false;
        end++;
    }
    *value_p = value;
    return !*end && in_range((double)value, row);
}

static bool
parse_seconds(
    const char *text, const struct uli_setting_row *row, double *value_p)
{
    char *end;
    double value = strtod(text, &end);
    *value_p = value;
    return end != text && !*end && isfinite(value) && in_range(value, row);
}

static bool
setting_row_parse(
    const struct uli_setting_row *row, const char *text, void *field)
{
    switch (row->type) {
    case ULI_SETTING_STRING:
        if (strlen(text) >= ULI_SETTING_TEXT - 1)
            return false;
        strcpy(field, text);
        return true;
    case ULI_SETTING_CHOICE:
        return parse_choice(text, row->default_text, field);
    case ULI_SETTING_BOOL:
        return parse_bool(text, field);
    case ULI_SETTING_INT:
    case ULI_SETTING_BYTES:
        return parse_int(text, row, field);
    case ULI_SETTING_SECONDS:
        return parse_seconds(text, row, field);
    case ULI_SETTING_PORTS:
        return uli_port_range_parse(text, field);
    case ULI_SETTING_TYPES:
        break;
    }
    return false;
}

static ulyx_status_t
setting_row_refuse(const struct uli_setting_row *row, const struct text *text)
{
    static const char *const what[] = {
        [ULI_SETTING_STRING] = "a shorter text",
        [ULI_SETTING_BOOL] = "0 or 1",
        [ULI_SETTING_INT] = "a whole number",
        [ULI_SETTING_BYTES] = "a number of bytes (K, M, G)",
        [ULI_SETTING_SECONDS] = "a number of seconds",
        [ULI_SETTING_PORTS] = "ports from 1 to 65535, as 29600-29699",
    };
    _Static_assert(sizeof(what) / sizeof(what[0]) == ULI_SETTING_TYPES,
        "one row per type");
    if (row->type == ULI_SETTING_CHOICE)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s=\"%s\" (%s): expected %s%s", row->name, text->value,
            text->source,
            row->default_text[0] == '|' ? "nothing or one of " : "one of ",
            row->default_text + strspn(row->default_text, "|"));
    if (row->min >= row->max)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s=\"%s\" (%s): expected %s", row->name, text->value, text->source,
            what[row->type]);
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "%s=\"%s\" (%s): expected %s from %.15g to %.15g", row->name,
        text->value, text->source, what[row->type], row->min, row->max);
}

static ulyx_status_t
gathered_load(const struct gathered *all, struct uli_settings *settings_p)
{
    struct uli_settings settings;
    memset(&settings, 0, sizeof(settings));
    for (size_t i = 0; i < ROW_COUNT; i++) {
        void *field = (char *)&settings + rows[i].offset;
        if (!setting_row_parse(&rows[i], all->texts[i].value, field))
            return setting_row_refuse(&rows[i], &all->texts[i]);
    }
    *settings_p = settings;
    return ULYX_SUCCESS;
}

/* ---- entry points -------------------------------------------------------- */

int32_t
uli_settings_cuda_connections(void)
{
    enum { LEAST = 1, USUAL = 8, MOST = 32 };
    const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    long connections = text ? strtol(text, NULL, 10) : 0;
    return connections >= LEAST && connections <= MOST ? (int32_t)connections
                                                       : USUAL;
}

static const char *
user_file(char *path_p, size_t bytes)
{
    const char *home = getenv("HOME");
    if (!home || !*home)
        return NULL;
    int length = snprintf(path_p, bytes, "%s/%s", home, USER_FILE);
    return length > 0 && (size_t)length < bytes ? path_p : NULL;
}

static void
user_cache_find(char path_p[ULI_SETTING_TEXT])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = -1;
    if (cache && cache[0] == '/')
        length = snprintf(path_p, ULI_SETTING_TEXT, "%s", cache);
    else if (home && home[0] == '/')
        length = snprintf(path_p, ULI_SETTING_TEXT, "%s/.cache", home);
    if (length <= 0 || length >= (int)ULI_SETTING_TEXT)
        path_p[0] = 0;
}

ulyx_status_t
uli_settings_load_files(
    const char *system_file, const char *user, struct uli_settings *settings_p)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    struct gathered *all = malloc(sizeof(*all));
    if (!all)
        return uli_error_errno("settings");
    all->warn = !atomic_flag_test_and_set(&warned);
    gathered_gather(all, system_file, user);
    ulyx_status_t status = gathered_load(all, settings_p);
    if (status == ULYX_SUCCESS)
        user_cache_find(settings_p->user_cache);
    free(all);
    return status;
}

ulyx_status_t
uli_settings_load(struct uli_settings *settings_p)
{
    char path[ULI_SETTING_TEXT];
    return uli_settings_load_files(
        SYSTEM_FILE, user_file(path, sizeof(path)), settings_p);
}

ulyx_status_t
uli_settings_explain(const char *name, char *value_p, size_t value_bytes,
    char *source_p, size_t source_bytes)
{
    size_t row = find_row(name);
    if (row == ROW_COUNT)
        return uli_error_pass(ULYX_ERR_INVALID_ARGUMENT, "no such setting");
    struct gathered *all = malloc(sizeof(*all));
    if (!all)
        return uli_error_pass(ULYX_ERR_NO_MEMORY, "out of memory");
    all->warn = false;
    char path[ULI_SETTING_TEXT];
    gathered_gather(all, SYSTEM_FILE, user_file(path, sizeof(path)));
    snprintf(value_p, value_bytes, "%s", all->texts[row].value);
    snprintf(source_p, source_bytes, "%s", all->texts[row].source);
    free(all);
    return ULYX_SUCCESS;
}
