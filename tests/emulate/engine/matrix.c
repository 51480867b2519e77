/* SPDX-License-Identifier: Apache-2.0
 *
 * ldmatrix, stmatrix and mma.sync: the warp's collectives on 8x8 matrices of
 * 16-bit elements. Lane l gives the address of row l%8 of matrix l/8, and
 * holds of each matrix row l/4, columns 2*(l%4) and the next one.
 */
#include "emulate/engine/engine.h"

struct matrix_lane {
    uint32_t addr;
    uint32_t *load;
    const uint32_t *store;
};

static uint16_t *
matrix_element(void **data, uint32_t matrix, uint32_t row, uint32_t column)
{
    const struct matrix_lane *lane = data[matrix * 8 + row];
    return (uint16_t *)emu_shared_at(emu.self->block, lane->addr) + column;
}

static bool
touch_rows(uint32_t count, void **data, bool write, const char *what)
{
    struct emu_accessor who = emu_accessor_self();
    who.what = what;
    for (uint32_t i = 0; i < count * 8; i++) {
        const struct matrix_lane *lane = data[i];
        emu_check_multiple(what, "row address", lane->addr, 16);
        if (!emu_memory_access(
                &who, emu_shared_at(who.block, lane->addr), 16, write))
            return false;
    }
    return true;
}

/* operands: count, transposed */
static void
act_load(const struct emu_meet *meet, struct emu_warp *warp, void **data)
{
    uint32_t count = (uint32_t)meet->operands[0];
    bool trans = meet->operands[1];
    (void)warp;
    touch_rows(count, data, false, "ldmatrix");
    for (uint32_t m = 0; m < count; m++)
        for (uint32_t l = 0; l < EMU_WARP; l++) {
            uint32_t word = 0, r = l / 4, c = 2 * (l % 4);
            for (uint32_t h = 0; h < 2; h++)
                word |= (uint32_t)(trans ? *matrix_element(data, m, c + h, r)
                                         : *matrix_element(data, m, r, c + h))
                        << 16 * h;
            ((struct matrix_lane *)data[l])->load[m] = word;
        }
}

static void
act_store(const struct emu_meet *meet, struct emu_warp *warp, void **data)
{
    uint32_t count = (uint32_t)meet->operands[0];
    bool trans = meet->operands[1];
    (void)warp;
    touch_rows(count, data, true, "stmatrix");
    for (uint32_t m = 0; m < count; m++)
        for (uint32_t l = 0; l < EMU_WARP; l++) {
            uint32_t word = ((struct matrix_lane *)data[l])->store[m];
            uint32_t r = l / 4, c = 2 * (l % 4);
            for (uint32_t h = 0; h < 2; h++)
                *(trans ? matrix_element(data, m, c + h, r)
                        : matrix_element(data, m, r, c + h)) =
                    (uint16_t)(word >> 16 * h);
        }
}

void
emu_ldmatrix(uint32_t *r, uint32_t addr, int count, bool trans)
{
    struct matrix_lane mine = {addr, r, NULL};
    struct emu_meet meet = {
        "ldmatrix", UINT32_MAX, {(uint64_t)count, trans}, act_load};
    emu_meet_warp(&meet, &mine);
}

void
emu_stmatrix(uint32_t addr, const uint32_t *r, int count, bool trans)
{
    struct matrix_lane mine = {addr, NULL, r};
    struct emu_meet meet = {
        "stmatrix", UINT32_MAX, {(uint64_t)count, trans}, act_store};
    emu_meet_warp(&meet, &mine);
}

struct mma_lane {
    float *d;
    const uint32_t *a;
    uint32_t b[2];
};

static float
half_value(int type, uint32_t word, uint32_t half)
{
    uint16_t v = (uint16_t)(word >> 16 * half);
    return type == EMU_BF16 ? emu_bf16_to_float(v) : emu_f16_to_float(v);
}

/* tf32 keeps the upper 19 bits of the word. */
static float
tf32_value(uint32_t word)
{
    union {
        uint32_t bits;
        float f;
    } v = {word & 0xffffe000};
    return v.f;
}

/* a[row][k], register j of lane l (g = l/4, t = l%4):
 * 16 bits: row g + 8*(j&1), k = 2t + 8*(j/2) + half
 * tf32:    row g + 8*(j&1), k = t + 4*(j/2)
 * b[k][n]: 16 bits: k = 2t + 8*j + half, n = g; tf32: k = t + 4*j, n = g */
static void
matrix_unpack(int type, void **data, float a[16][16], float b[16][8])
{
    for (uint32_t l = 0; l < EMU_WARP; l++) {
        const struct mma_lane *lane = data[l];
        uint32_t g = l / 4, t = l % 4;
        for (uint32_t j = 0; j < 4; j++)
            for (uint32_t h = 0; h < 2 && type != EMU_TF32; h++)
                a[g + 8 * (j & 1)][2 * t + 8 * (j / 2) + h] =
                    half_value(type, lane->a[j], h);
        for (uint32_t j = 0; j < 2; j++)
            for (uint32_t h = 0; h < 2 && type != EMU_TF32; h++)
                b[2 * t + 8 * j + h][g] = half_value(type, lane->b[j], h);
        for (uint32_t j = 0; j < 4 && type == EMU_TF32; j++)
            a[g + 8 * (j & 1)][t + 4 * (j / 2)] = tf32_value(lane->a[j]);
        for (uint32_t j = 0; j < 2 && type == EMU_TF32; j++)
            b[t + 4 * j][g] = tf32_value(lane->b[j]);
    }
}

static void
act_mma(const struct emu_meet *meet, struct emu_warp *warp, void **data)
{
    float a[16][16], b[16][8];
    int type = (int)meet->operands[0];
    uint32_t depth = type == EMU_TF32 ? 8 : 16;
    (void)warp;
    matrix_unpack(type, data, a, b);
    for (uint32_t l = 0; l < EMU_WARP; l++) {
        struct mma_lane *lane = data[l];
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t row = l / 4 + 8 * (i / 2), column = 2 * (l % 4) + (i & 1);
            float sum = 0;
            for (uint32_t k = 0; k < depth; k++)
                sum += a[row][k] * b[k][column];
            lane->d[i] += sum;
        }
    }
}

void
emu_mma(int type, float *d, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    struct mma_lane mine = {d, a, {b0, b1}};
    struct emu_meet meet = {"mma.sync", UINT32_MAX, {(uint64_t)type}, act_mma};
    emu_meet_warp(&meet, &mine);
}
