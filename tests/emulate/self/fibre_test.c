/* SPDX-License-Identifier: Apache-2.0
 *
 * The fibre switch alone, so that this test can run on other machines as well:
 * callee-saved registers survive, stacks do not overlap, thousands of switches
 * in any order. A plain program: 0 is success.
 */
#include "emulate/core/fibre.h"
#include <stdio.h>
#include <stdint.h>

enum { FIBRES = 50, ROUNDS = 200 };

static void *main_sp, *fibre_sp[FIBRES];
static int current, finished;
static double results[FIBRES];

/* More integers and doubles are live across switches than there are registers
 * that the switch must save. */
static void
fibre_body(void)
{
    int self = current;
    uint64_t a = (uint64_t)self, b = a + 1, c = a + 2, d = a + 3, e = a + 4;
    double p = self, q = p + 0.5, r = p + 0.25, s = p + 0.125;
    for (int i = 0; i < ROUNDS; i++) {
        a = a * 3 + 1, b += a, c ^= b, d += c, e ^= d;
        p += 1, q += p, r += q * 0.5, s += r * 0.25;
        emu_fibre_switch(&fibre_sp[self], main_sp);
    }
    results[self] = (double)(e % 1000003) + p + q + r + s;
    finished++;
    emu_fibre_switch(&fibre_sp[self], main_sp);
}

static double
sum_expected(int self)
{
    uint64_t a = (uint64_t)self, b = a + 1, c = a + 2, d = a + 3, e = a + 4;
    double p = self, q = p + 0.5, r = p + 0.25, s = p + 0.125;
    for (int i = 0; i < ROUNDS; i++) {
        a = a * 3 + 1, b += a, c ^= b, d += c, e ^= d;
        p += 1, q += p, r += q * 0.5, s += r * 0.25;
    }
    return (double)(e % 1000003) + p + q + r + s;
}

int
main(void)
{
    unsigned random = 7, left[FIBRES];
    int wrong = 0;
    for (int i = 0; i < FIBRES; i++) {
        unsigned char *stack = emu_stack_take();
        if (!stack)
            return 2;
        fibre_sp[i] = emu_fibre_start(stack, fibre_body);
        left[i] = ROUNDS + 1;
    }
    while (finished < FIBRES) {
        random = random * 1664525u + 1013904223u;
        current = (int)(random >> 16) % FIBRES;
        if (!left[current])
            continue;
        left[current]--;
        emu_fibre_switch(&main_sp, fibre_sp[current]);
    }
    for (int i = 0; i < FIBRES; i++)
        wrong += results[i] != sum_expected(i);
    printf("%d fibres, %d wrong\n", FIBRES, wrong);
    return wrong != 0;
}
