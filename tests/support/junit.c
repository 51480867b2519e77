/* SPDX-License-Identifier: Apache-2.0
 *
 * The cases are kept in memory first, because the totals precede them in the
 * file. Standard error is turned into an unnamed file during a case; processes
 * that the case starts inherit it.
 */
#include "support/junit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct junit {
    const char *path, *suite;
    char *body;
    size_t body_bytes;
    FILE *out; /* collects the body of the report */
    int stderr_fd, capture_fd;
    size_t totals[3];
    double seconds;
};

struct junit *
junit_open(const char *path, const char *suite)
{
    if (!path)
        return NULL;
    struct junit *report = calloc(1, sizeof(*report));
    if (!report)
        abort();
    report->path = path;
    report->suite = suite;
    report->out = open_memstream(&report->body, &report->body_bytes);
    report->stderr_fd = report->capture_fd = -1;
    return report;
}

void
junit_begin(struct junit *report)
{
    if (!report)
        return;
    fflush(stderr);
    report->capture_fd = memfd_create("stderr", MFD_CLOEXEC);
    report->stderr_fd = dup(STDERR_FILENO);
    if (report->capture_fd >= 0)
        dup2(report->capture_fd, STDERR_FILENO);
}

/* XML 1.0 has no way to write most control characters. */
static void
put_escaped(FILE *out, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '<')
            fputs("&lt;", out);
        else if (c == '>')
            fputs("&gt;", out);
        else if (c == '&')
            fputs("&amp;", out);
        else if (c == '"')
            fputs("&quot;", out);
        else if (c < 0x20 && c != '\n' && c != '\t')
            fputc('?', out);
        else
            fputc(c, out);
    }
}

/* Ends the redirection of stderr. Returns what the case wrote there, *length_p
 * bytes that the caller frees, and also writes these bytes to the real
 * stderr. */
static char *
take_stderr(struct junit *report, size_t *length_p)
{
    fflush(stderr);
    dup2(report->stderr_fd, STDERR_FILENO);
    close(report->stderr_fd);
    *length_p = 0;
    if (report->capture_fd < 0)
        return NULL;
    off_t size = lseek(report->capture_fd, 0, SEEK_END);
    char *text = malloc((size_t)size + 1);
    ssize_t got = text ? pread(report->capture_fd, text, (size_t)size, 0) : -1;
    close(report->capture_fd);
    if (got > 0) {
        fwrite(text, 1, (size_t)got, stderr);
        *length_p = (size_t)got;
    }
    return text;
}

void
junit_end(struct junit *report, const char *test, enum junit_result result,
    double seconds)
{
    if (!report)
        return;
    size_t length;
    char *text = take_stderr(report, &length);
    report->totals[result]++;
    report->seconds += seconds;
    fprintf(report->out,
        "    <testcase name=\"%s\" classname=\"%s\" status=\"run\" "
        "result=\"%s\" time=\"%.3f\">\n",
        test, report->suite, result == JUNIT_SKIPPED ? "skipped" : "completed",
        seconds);
    if (result == JUNIT_FAILED) {
        fprintf(report->out, "      <failure message=\"failed\">");
        put_escaped(report->out, text, length);
        fprintf(report->out, "</failure>\n");
    } else if (result == JUNIT_SKIPPED) {
        fprintf(report->out, "      <skipped/>\n");
    }
    fprintf(report->out, "    </testcase>\n");
    free(text);
}

static void
put_totals(const struct junit *report, FILE *file, const char *tag)
{
    size_t all = report->totals[JUNIT_PASSED] + report->totals[JUNIT_FAILED] +
                 report->totals[JUNIT_SKIPPED];
    fprintf(file,
        "<%s name=\"%s\" tests=\"%zu\" failures=\"%zu\" errors=\"0\" "
        "disabled=\"0\" skipped=\"%zu\" time=\"%.3f\">\n",
        tag, report->suite, all, report->totals[JUNIT_FAILED],
        report->totals[JUNIT_SKIPPED], report->seconds);
}

bool
junit_close(struct junit *report)
{
    if (!report)
        return true;
    fclose(report->out);
    FILE *file = fopen(report->path, "w");
    bool written = file != NULL;
    if (file) {
        fprintf(file, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        put_totals(report, file, "testsuites");
        fprintf(file, "  ");
        put_totals(report, file, "testsuite");
        fprintf(file, "%s  </testsuite>\n</testsuites>\n", report->body);
        written = fclose(file) == 0;
    }
    if (!written)
        perror(report->path);
    free(report->body);
    free(report);
    return written;
}
