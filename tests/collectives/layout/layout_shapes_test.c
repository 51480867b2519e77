/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes on which other systems failed, from tests/data/reported-shapes.csv:
 * each rank has the heads and rows listed there, and each of the four
 * directions moves every element exactly once, counted by volume
 * (layout_moves_test.c checks element by element).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "collectives/layout/layout.h"
#include "support/test.h"

enum { MAX_RANKS = 64, COLUMNS = 13, LINE_BYTES = 1024 };

struct row {
    char line[LINE_BYTES];
    char *column[COLUMNS];
    int32_t nranks;
    int64_t batch, seq, heads, kv_heads, dk, dv;
};

/* ---- the file ------------------------------------------------------------ */

/* Splits the line at commas. Only the last column, the thread, may contain a
 * comma. */
static bool
parse_row(struct row *row, const char *line)
{
    int n = 0;
    snprintf(row->line, sizeof(row->line), "%s", line);
    row->line[strcspn(row->line, "\n")] = '\0';
    for (char *at = row->line; at && n < COLUMNS; n++) {
        row->column[n] = at;
        at = strchr(at, ',');
        if (at)
            *at++ = '\0';
    }
    if (n != COLUMNS)
        return false;
    row->nranks = (int32_t)atoi(row->column[1]);
    row->batch = atoll(row->column[2]);
    row->seq = atoll(row->column[3]);
    row->heads = atoll(row->column[4]);
    row->kv_heads = atoll(row->column[5]);
    row->dk = atoll(row->column[6]);
    row->dv = atoll(row->column[7]);
    return true;
}

/* Parses a list: "3 x8 2 x8" is eight times 3, then eight times 2. */
static int32_t
parse_list(const char *text, int64_t list[MAX_RANKS])
{
    int32_t n = 0;
    while (*text) {
        char *end;
        if (*text == ' ') {
            text++;
        } else if (*text == 'x') {
            int64_t times = strtoll(text + 1, &end, 10), value = list[n - 1];
            for (; times > 1 && n < MAX_RANKS; times--)
                list[n++] = value;
            text = end;
        } else {
            list[n++] = strtoll(text, &end, 10);
            assert_true(end > text && n < MAX_RANKS);
            text = end;
        }
    }
    return n;
}

/* ---- one shape ----------------------------------------------------------- */

static void
add_tensor(
    struct uli_shape *shape, int32_t part, int64_t heads, int64_t dim, bool kv)
{
    struct uli_shape_tensor *t = &shape->tensors[shape->ntensors++];
    t->part = part;
    t->dtype = ULYX_DTYPE_BF16;
    t->elem_bytes = 2;
    t->heads = heads;
    t->dim = dim;
    t->ownership = kv ? ULYX_HEADS_KV : ULYX_HEADS_QUERY;
}

/* Makes q, k, v and o, and the parts and tensors that the name of the row
 * implies. */
static void
make_shape(struct uli_shape *shape, const struct row *row)
{
    memset(shape, 0, sizeof(*shape));
    shape->nranks = row->nranks;
    shape->batch = row->batch;
    shape->heads = row->heads;
    shape->nparts = 1;
    shape->parts[0].rows = row->seq;
    int32_t keys = 0;
    if (strstr(row->column[0], "cross_attention")) {
        shape->nparts = 2;
        shape->parts[1].axis = keys = 1;
        shape->parts[1].rows = 6300;
    }
    add_tensor(shape, 0, row->heads, row->dk, false);
    add_tensor(shape, keys, row->kv_heads, row->dk, true);
    add_tensor(shape, keys, row->kv_heads, row->dv, true);
    add_tensor(shape, 0, row->heads, row->dv, false);
    if (strstr(row->column[0], "replicated_text")) {
        shape->nparts = 2;
        shape->parts[1].kind = ULYX_PART_REPLICATED;
        shape->parts[1].rows = 1024;
        add_tensor(shape, 1, row->heads, row->dk, false);
        add_tensor(shape, 1, row->kv_heads, row->dk, true);
    }
}

static bool
add_volume(void *context, const struct uli_move *move)
{
    *(int64_t *)context += move->batches * move->rows * move->heads;
    return true;
}

static void
check_volumes(const struct uli_layout *layout, int32_t tensor, int32_t rank)
{
    const struct uli_shape *shape = uli_layout_shape(layout);
    const struct uli_shape_tensor *t = &shape->tensors[tensor];
    struct uli_place scratch[MAX_RANKS];
    int64_t first, heads;
    uli_layout_heads(layout, tensor, rank, &first, &heads);
    for (int op = 0; op < ULYX_DIRECTIONS; op++) {
        bool to_head = op == ULYX_SEQ_TO_HEAD || op == ULYX_HEAD_TO_SEQ_ADJOINT;
        int64_t volume = 0,
                expected =
                    to_head ? shape->batch * shape->parts[t->part].rows * heads
                            : shape->batch *
                                  uli_layout_seq_rows(layout, t->part, rank) *
                                  t->heads;
        assert_true(uli_layout_each_move(
            layout, op, tensor, rank, -1, scratch, add_volume, &volume));
        assert_int_equal(volume, expected);
    }
}

static void
check_row(const struct row *row)
{
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    int64_t heads[MAX_RANKS], rows[MAX_RANKS];
    make_shape(&shape, row);
    if (strcmp(row->column[9], "error") == 0) {
        assert_status(uli_layout_create(&shape, NULL, NULL, &layout),
            ULYX_ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(ulyx_last_error(), "not a multiple of its"));
        return;
    }
    assert_status(uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
    assert_int_equal(parse_list(row->column[9], heads), row->nranks);
    assert_int_equal(parse_list(row->column[10], rows), row->nranks);
    for (int32_t r = 0; r < row->nranks; r++) {
        int64_t first, count;
        uli_layout_heads(layout, 0, r, &first, &count);
        assert_int_equal(count, heads[r]);
        assert_int_equal(uli_layout_seq_rows(layout, 0, r), rows[r]);
        for (int32_t t = 0; t < shape.ntensors; t++)
            check_volumes(layout, t, r);
    }
    uli_layout_destroy(layout);
}

static void
reported_shape(void **state)
{
    check_row(*state);
}

/* A KV head on up to three ranks (40/8 on 16), and a KV head on all (16/1 on
 * 8). */
static void
reported_holders_are_right(void **state)
{
    (void)state;
    struct uli_shape shape;
    struct uli_layout *layout = NULL;
    struct row row = {.column = {(char[]){"plain"}},
        .nranks = 16,
        .batch = 1,
        .seq = 64,
        .heads = 40,
        .kv_heads = 8,
        .dk = 8,
        .dv = 8};
    make_shape(&shape, &row);
    assert_status(uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
    int holders[8] = {0}, most = 0;
    for (int32_t r = 0; r < 16; r++) {
        int64_t first, count;
        uli_layout_heads(layout, 1, r, &first, &count);
        for (int64_t h = first; h < first + count; h++)
            most = ++holders[h] > most ? holders[h] : most;
    }
    assert_int_equal(most, 3);
    uli_layout_destroy(layout);
    row.nranks = 8;
    row.heads = 16;
    row.kv_heads = 1;
    make_shape(&shape, &row);
    assert_status(uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
    for (int32_t r = 0; r < 8; r++) {
        int64_t first, count;
        uli_layout_heads(layout, 1, r, &first, &count);
        assert_int_equal(first, 0);
        assert_int_equal(count, 1);
    }
    uli_layout_destroy(layout);
}

/* In every balanced split the first (n mod P) ranks have one more. */
static void
balanced_splits_differ_by_one(void **state)
{
    (void)state;
    for (int32_t nranks = 1; nranks <= 17; nranks++)
        for (int64_t n = 1; n <= 70; n++) {
            struct uli_shape shape;
            struct uli_layout *layout = NULL;
            struct row row = {.column = {(char[]){"plain"}},
                .nranks = nranks,
                .batch = 1,
                .seq = n,
                .heads = n,
                .kv_heads = n,
                .dk = 1,
                .dv = 1};
            make_shape(&shape, &row);
            assert_status(
                uli_layout_create(&shape, NULL, NULL, &layout), ULYX_SUCCESS);
            for (int32_t r = 0; r < nranks; r++) {
                int64_t first, count;
                int64_t right = n / nranks + (r < n % nranks);
                uli_layout_heads(layout, 0, r, &first, &count);
                assert_int_equal(count, right);
                assert_int_equal(uli_layout_seq_rows(layout, 0, r), right);
            }
            uli_layout_destroy(layout);
        }
}

/* ---- every row of the file is a case ------------------------------------- */

enum { MAX_ROWS = 100, FIXED = 2 };
static struct row rows_of_file[MAX_ROWS];
static struct CMUnitTest tests[MAX_ROWS + FIXED] = {
    cmocka_unit_test(reported_holders_are_right),
    cmocka_unit_test(balanced_splits_differ_by_one),
};

/* Reads the file into rows_of_file and adds a test per row.
 * returns the number of tests, or -1 when the file is not as expected. */
static int
read_rows(void)
{
    char line[LINE_BYTES];
    int n = 0;
    FILE *file = fopen(TEST_DATA_DIR "/reported-shapes.csv", "r");
    if (file == NULL)
        return -1;
    while (n >= 0 && n < MAX_ROWS && fgets(line, sizeof(line), file)) {
        if (line[0] == '#' || strncmp(line, "name,", 5) == 0)
            continue;
        if (!parse_row(&rows_of_file[n], line)) {
            n = -1;
            break;
        }
        tests[FIXED + n].name = rows_of_file[n].column[0];
        tests[FIXED + n].test_func = reported_shape;
        tests[FIXED + n].initial_state = &rows_of_file[n];
        n++;
    }
    fclose(file);
    return n < 28 ? -1 : FIXED + n;
}

int
main(int argc, char **argv)
{
    int count = read_rows();
    if (count < 0) {
        fprintf(
            stderr, "cannot read %s\n", TEST_DATA_DIR "/reported-shapes.csv");
        return 1;
    }
    return test_main(argc, argv, "LayoutShapes", tests, (size_t)count);
}
