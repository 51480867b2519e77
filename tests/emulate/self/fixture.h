/* SPDX-License-Identifier: Apache-2.0
 *
 * Setup and teardown of the emulator's tests, and conversions of numbers.
 */
#ifndef TESTS_EMULATE_SELF_FIXTURE_H
#define TESTS_EMULATE_SELF_FIXTURE_H

#include <stdint.h>
#include "support/test.h"
#ifdef ULI_EMULATE
#include "emulate.h"

static inline int
open_default(void **state)
{
    (void)state;
    return emu_open(NULL);
}
#endif

static inline int
close_all(void **state)
{
    (void)state;
#ifdef ULI_EMULATE
    emu_close();
#endif
    return 0;
}

static inline float
bf16_value(uint16_t v)
{
    union {
        uint32_t bits;
        float f;
    } w = {(uint32_t)v << 16};
    return w.f;
}

#endif
