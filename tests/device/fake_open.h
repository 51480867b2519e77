/* SPDX-License-Identifier: Apache-2.0
 *
 * The tests' driver (FAKE_12), opened for the whole process, as ulyx opens it,
 * and checks of error texts.
 */
#ifndef TESTS_DEVICE_FAKE_OPEN_H
#define TESTS_DEVICE_FAKE_OPEN_H

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include "base/status.h"
#include "device/cuda_driver.h"
#include "device/fake_driver.h"
#include "support/test.h"

/* Opens the driver; NULL if it is missing or ulyx refuses it. */
static inline struct fake_driver *
fake_driver_open(void)
{
    void *library = dlopen(FAKE_12, RTLD_NOW);
    struct fake_driver *driver = library ? dlsym(library, "fake_driver") : NULL;
    return driver && uli_cuda_open(FAKE_12) == ULYX_SUCCESS ? driver : NULL;
}

/* Checks that the last error contains the text. */
static inline void
expect_text(const char *text)
{
    if (!strstr(uli_error_text(), text))
        fail_msg("\"%s\" is not in \"%s\"", text, uli_error_text());
}

#endif
