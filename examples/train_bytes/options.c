/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line, in one table. An unknown flag, a value out of range and a
 * contradictory shape are errors, with a message that names the option.
 */
#include "options.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ulyx/ulyx.h>

enum kind { FLAG, WHOLE, REAL, CHOICE, KINDS };

struct option {
    const char *name;
    enum kind kind;
    size_t offset;
    double low, high;
    const char *choices[2]; /* CHOICE: the words for false and true */
    const char *help;
};

#define AT(field) offsetof(struct options, field)
static const struct option table[] = {
    {"--ranks", WHOLE, AT(ranks), 1, 1024, {0},
        "ranks that share each sequence (1: no communicator)"},
    {"--steps", WHOLE, AT(steps), 1, 1e9, {0}, "steps (200)"},
    {"--seq", WHOLE, AT(seq), 2, 1 << 28, {0},
        "tokens of a step, over all ranks (1024)"},
    {"--docs", WHOLE, AT(docs), 1, 1 << 20, {0},
        "documents packed into a sequence, drawn anew in each step (3)"},
    {"--layers", WHOLE, AT(layers), 1, 1000, {0}, "layers (4)"},
    {"--dim", WHOLE, AT(dim), 8, 1 << 16, {0}, "width of the model (192)"},
    {"--heads", WHOLE, AT(heads), 1, 1024, {0}, "query heads (6)"},
    {"--kv-heads", WHOLE, AT(kv_heads), 1, 1024, {0}, "KV heads (2)"},
    {"--hidden", WHOLE, AT(hidden), 0, 1 << 18, {0},
        "width of the SwiGLU (8/3 of --dim, rounded up to a multiple of 16)"},
    {"--dtype", CHOICE, AT(f64), 0, 0, {"f32", "f64"},
        "type of parameters and activations: f32 or f64 (f32)"},
    {"--device", CHOICE, AT(device), 0, 0, {"cpu", "cuda"},
        "where the model is kept and computed: cpu, or cuda, where all ranks "
        "use the current device (cpu)"},
    {"--lr", REAL, AT(lr), 0, 1e3, {0}, "learning rate (0.002)"},
    {"--clip", REAL, AT(clip), 0, 1e9, {0},
        "largest global norm of the gradient; 0 = no limit (1)"},
    {"--decay", REAL, AT(decay), 0, 10, {0},
        "AdamW's weight decay of matrices (0.1)"},
    {"--sgd", FLAG, AT(sgd), 0, 0, {0}, "plain SGD in place of AdamW"},
    {"--seed", WHOLE, AT(seed), 0, 1e15, {0},
        "seed of weights and batches (1)"},
    {"--split", CHOICE, AT(balanced), 0, 0, {"heads", "balanced"},
        "what a rank computes: heads, which are whole, or balanced, which is "
        "an equal share of the work (heads)"},
    {"--order", CHOICE, AT(zigzag), 0, 0, {"contiguous", "zigzag"},
        "which tokens a rank has: contiguous or zigzag (contiguous)"},
    {"--save", CHOICE, AT(save_none), 0, 0, {"heads", "none"},
        "what attention keeps for backward: heads, which are head-sharded q, "
        "k, v, or none (heads)"},
    {"--windows", FLAG, AT(windows), 0, 0, {0},
        "put activations into windows, which saves a copy"},
    {"--threads", FLAG, AT(as_threads), 0, 0, {0},
        "ranks are threads of one process, not processes"},
    {"--rank-threads", WHOLE, AT(threads), 0, 4096, {0},
        "threads with which a rank computes (usable cores / ranks)"},
    {"--timeout", REAL, AT(timeout_s), 0, 86400, {0},
        "seconds that a wait may take (ULYX_TIMEOUT, or 600)"},
    {"--no-progress", FLAG, AT(no_progress), 0, 0, {0},
        "no progress line on a terminal"},
};
enum { OPTIONS = sizeof(table) / sizeof(table[0]) };

void
options_default(struct options *options_p)
{
    memset(options_p, 0, sizeof(*options_p));
    options_p->ranks = 1;
    options_p->steps = 200;
    options_p->seq = 1024;
    options_p->docs = 3;
    options_p->layers = 4;
    options_p->dim = 192;
    options_p->heads = 6;
    options_p->kv_heads = 2;
    options_p->lr = 0.002;
    options_p->clip = 1;
    options_p->decay = 0.1;
    options_p->seed = 1;
}

static void
usage_print(void)
{
    printf("usage: train_bytes [options] [FILE...]\n"
           "Trains a small transformer on the bytes of a text; each sequence "
           "is sharded\nover ranks.\n\n"
           "  train_bytes --ranks 4 --steps 200 --seq 1024 [FILE...]\n"
           "  mpirun -np 4 train_bytes --seq 4096 book.txt\n\n"
           "Without a file, the text is the documents of ulyx.\n\n");
    for (int i = 0; i < OPTIONS; i++)
        printf("  %-15s %s\n", table[i].name, table[i].help);
    printf("  --version       the version of the library\n"
           "  --help          this text\n");
}

/* Prints the source of manual pages and completion: lines of fields with
 * tabs. */
static void
options_print_table(void)
{
    static const char *const values[KINDS] = {[WHOLE] = "N", [REAL] = "X"};

    printf("name\ttrain_bytes\ttrains a small transformer with sequences "
           "sharded over ranks\n"
           "operand\tFILE...\n");
    for (int i = 0; i < OPTIONS; i++) {
        const struct option *o = &table[i];

        printf("option\t\t%s\t", o->name);
        if (o->kind == CHOICE)
            printf("%s|%s", o->choices[0], o->choices[1]);
        else if (o->kind != FLAG)
            printf("%s", values[o->kind]);
        printf("\t%s\n", o->help);
    }
    printf("option\t\t--version\t\tthe version of the library\n"
           "option\t-h\t--help\t\tthe options\n");
}

/* Prints the answer to an option about the program itself; false: the word is
 * no such option. */
static bool
options_answer(const char *word)
{
    int32_t major, minor, patch;

    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        usage_print();
    else if (strcmp(word, "--help=table") == 0)
        options_print_table();
    else if (strcmp(word, "--version") == 0 &&
             ulyx_get_version(&major, &minor, &patch) == ULYX_SUCCESS)
        printf("train_bytes %d.%d.%d\n", (int)major, (int)minor, (int)patch);
    else
        return false;
    return true;
}

static const struct option *
option_find(const char *name)
{
    for (int i = 0; i < OPTIONS; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

static int
store_number(
    const struct option *option, const char *text, struct options *options_p)
{
    char *field = (char *)options_p + option->offset, *end;
    double value = strtod(text, &end);

    if (end == text || *end != 0 || !(value >= option->low) ||
        value > option->high ||
        (option->kind == WHOLE && value != floor(value))) {
        fprintf(stderr,
            "train_bytes: %s %s: expected a %snumber from %.15g to %.15g\n",
            option->name, text, option->kind == WHOLE ? "whole " : "",
            option->low, option->high);
        return 2;
    }
    if (option->kind == WHOLE)
        *(int64_t *)(void *)field = (int64_t)value;
    else
        *(double *)(void *)field = value;
    return 0;
}

static int
store_choice(
    const struct option *option, const char *text, struct options *options_p)
{
    bool *field = (bool *)((char *)options_p + option->offset);

    for (int i = 0; i < 2; i++)
        if (strcmp(text, option->choices[i]) == 0) {
            *field = i == 1;
            return 0;
        }
    fprintf(stderr, "train_bytes: %s %s: expected %s or %s\n", option->name,
        text, option->choices[0], option->choices[1]);
    return 2;
}

/* Checks conditions between several options. */
static int
options_check(struct options *o)
{
    const char *wrong = NULL;

    if (o->hidden == 0)
        o->hidden = (o->dim * 8 / 3 + 15) / 16 * 16;
    if (o->heads % o->kv_heads != 0)
        wrong = "--heads must be a multiple of --kv-heads";
    else if (o->dim % o->heads != 0 || o->dim / o->heads % 8 != 0)
        wrong = "--dim must be --heads times a multiple of 8";
    else if (o->seq < 2 * o->docs)
        wrong = "--seq must have two tokens or more for each of --docs";
    else if (o->device && o->f64)
        wrong = "--device cuda has --dtype f32 only";
    if (!wrong)
        return 0;
    fprintf(stderr, "train_bytes: %s\n", wrong);
    return 2;
}

int
options_parse(int argc, char **argv, struct options *options_p)
{
    int error = 0, at = 1;

    options_default(options_p);
    for (; at < argc && argv[at][0] == '-' && error == 0; at++) {
        const struct option *option = option_find(argv[at]);

        if (options_answer(argv[at]))
            return 1;
        if (!option) {
            fprintf(stderr, "train_bytes: %s: no such option; see --help\n",
                argv[at]);
            return 2;
        }
        if (option->kind == FLAG) {
            *(bool *)((char *)options_p + option->offset) = true;
            continue;
        }
        if (++at == argc) {
            fprintf(stderr, "train_bytes: %s needs a value\n", option->name);
            return 2;
        }
        error = option->kind == CHOICE
                    ? store_choice(option, argv[at], options_p)
                    : store_number(option, argv[at], options_p);
    }
    options_p->files = argv + at;
    options_p->file_count = argc - at;
    return error != 0 ? error : options_check(options_p);
}
