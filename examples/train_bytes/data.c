/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading text and drawing batches. Borders of documents are drawn uniformly
 * and do not depend on the sharding of the sequence; a document has two tokens
 * at least. After the end of the text its begin follows, so that a document may
 * be longer than the text.
 */
#include "data.h"

#include <errno.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint64_t
random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static double
random_unit(uint64_t *state)
{
    return ((double)(random_next(state) >> 11) + 0.5) / 9007199254740992.0;
}

double
random_normal(uint64_t *state)
{
    double radius = sqrt(-2 * log(random_unit(state)));

    return radius * cos(2 * 3.14159265358979323846 * random_unit(state));
}

static int
corpus_append(struct corpus *corpus, const char *path)
{
    FILE *file = fopen(path, "rb");
    unsigned char block[65536], *grown;
    size_t got;
    int error;

    if (!file) {
        fprintf(stderr, "train_bytes: %s: %s\n", path, strerror(errno));
        return 2;
    }
    while ((got = fread(block, 1, sizeof(block), file)) > 0) {
        grown = realloc(corpus->bytes, (size_t)corpus->count + got);
        if (!grown) {
            fprintf(stderr, "train_bytes: %s: no memory for it\n", path);
            fclose(file);
            return 2;
        }
        corpus->bytes = grown;
        memcpy(corpus->bytes + corpus->count, block, got);
        corpus->count += (int64_t)got;
    }
    error = ferror(file) ? 2 : 0;
    if (error)
        fprintf(stderr, "train_bytes: %s: %s\n", path, strerror(errno));
    fclose(file);
    return error;
}

/* Appends README.md and docs of ulyx: from the repository from which this
 * program was built, else from the one that contains the program, else as they
 * are installed beside it. returns: 0, or 2 after a message. */
static int
append_own_documents(struct corpus *corpus)
{
    char roots[3][4096] = {TRAIN_SOURCE_DIR}, pattern[3 * 4096 + 16];
    ssize_t length =
        readlink("/proc/self/exe", roots[1], sizeof(roots[1]) - 32);
    static const char *const parts[] = {"README.md", "docs/*.md"};

    roots[1][length > 0 ? length : 0] = 0;
    for (int up = 0; up < 3 && strrchr(roots[1], '/'); up++) {
        *strrchr(roots[1], '/') = 0; /* <root>/build/bin/train_bytes */
        if (up == 1)                 /* <prefix>/bin/train_bytes */
            snprintf(
                roots[2], sizeof(roots[2]), "%.4060s/share/doc/ulyx", roots[1]);
    }
    for (int root = 0; root < 3 && corpus->count == 0; root++)
        for (int part = 0; part < 2; part++) {
            glob_t found = {0};

            snprintf(
                pattern, sizeof(pattern), "%s/%s", roots[root], parts[part]);
            if (glob(pattern, 0, NULL, &found) == 0)
                for (size_t i = 0; i < found.gl_pathc; i++)
                    if (corpus_append(corpus, found.gl_pathv[i]) != 0)
                        return globfree(&found), 2;
            globfree(&found);
        }
    if (corpus->count > 0)
        return 0;
    fprintf(stderr,
        "train_bytes: README.md and docs of ulyx are neither in %s, nor in %s, "
        "nor in %s; name a text file: train_bytes [options] FILE...\n",
        roots[0], roots[1], roots[2]);
    return 2;
}

static double
entropy_of(const struct corpus *corpus)
{
    int64_t counts[VOCABULARY] = {0};
    double entropy = 0;

    for (int64_t i = 0; i < corpus->count; i++)
        counts[corpus->bytes[i]]++;
    for (int i = 0; i < VOCABULARY; i++) {
        double share = (double)counts[i] / (double)corpus->count;

        entropy -= share > 0 ? share * log(share) : 0;
    }
    return entropy;
}

int
corpus_load(struct corpus *corpus_p, char *const *files, int file_count)
{
    int error = 0;

    memset(corpus_p, 0, sizeof(*corpus_p));
    for (int i = 0; i < file_count && error == 0; i++)
        error = corpus_append(corpus_p, files[i]);
    if (file_count == 0)
        error = append_own_documents(corpus_p);
    if (error == 0 && corpus_p->count == 0) {
        fprintf(stderr, "train_bytes: the text is empty\n");
        error = 2;
    }
    if (error != 0)
        corpus_free(corpus_p);
    else
        corpus_p->entropy = entropy_of(corpus_p);
    return error;
}

void
corpus_free(struct corpus *corpus)
{
    free(corpus->bytes);
    memset(corpus, 0, sizeof(*corpus));
}

int
batch_create(struct batch *batch_p, int64_t seq, int64_t docs)
{
    size_t rows = (size_t)seq;

    memset(batch_p, 0, sizeof(*batch_p));
    batch_p->seq = seq;
    batch_p->docs = docs;
    batch_p->tokens = malloc(rows);
    batch_p->labels = calloc(rows, sizeof(*batch_p->labels));
    batch_p->positions = calloc(rows, sizeof(*batch_p->positions));
    batch_p->begins = calloc((size_t)docs + 1, sizeof(*batch_p->begins));
    if (batch_p->tokens && batch_p->labels && batch_p->positions &&
        batch_p->begins)
        return 0;
    fprintf(stderr, "train_bytes: no memory for a batch\n");
    batch_free(batch_p);
    return 2;
}

void
batch_free(struct batch *batch)
{
    free(batch->tokens);
    free(batch->labels);
    free(batch->positions);
    free(batch->begins);
    memset(batch, 0, sizeof(*batch));
}

static int
borders_compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

    return (a > b) - (a < b);
}

/* Draws docs - 1 borders, in ascending order, so that each document has two
 * tokens at least. */
static void
draw_borders(struct batch *batch, uint64_t *state)
{
    int64_t spare = batch->seq - 2 * batch->docs;

    batch->begins[0] = 0;
    for (int64_t i = 1; i < batch->docs; i++)
        batch->begins[i] =
            (int64_t)(random_next(state) % (uint64_t)(spare + 1));
    qsort(batch->begins + 1, (size_t)batch->docs - 1, sizeof(int64_t),
        borders_compare);
    for (int64_t i = 1; i < batch->docs; i++)
        batch->begins[i] += 2 * i;
    batch->begins[batch->docs] = batch->seq;
}

void
batch_draw(struct batch *batch, const struct corpus *corpus, int64_t seed,
    int64_t step)
{
    uint64_t state = (uint64_t)seed * UINT64_C(0x2545f4914f6cdd1d) +
                     (uint64_t)step * UINT64_C(0x9e3779b97f4a7c15) * 7919;

    draw_borders(batch, &state);
    for (int64_t d = 0; d < batch->docs; d++) {
        int64_t begin = batch->begins[d], end = batch->begins[d + 1];
        int64_t from = (int64_t)(random_next(&state) % (uint64_t)corpus->count);

        for (int64_t i = begin; i < end; i++) {
            batch->tokens[i] =
                corpus->bytes[(from + i - begin) % corpus->count];
            batch->positions[i] = i - begin;
            batch->labels[i] = -1;
            if (i > begin)
                batch->labels[i - 1] = batch->tokens[i];
        }
    }
    batch->predicted = batch->seq - batch->docs;
}
