/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulated CUDA driver: all entry points that src/device looks up,
 * implemented over the emulator. The library under test opens it as
 * libcuda.so.1, by which name it also opens the real driver, because the
 * program's run path comes first. Tests inject faults by the calls below.
 */
#ifndef EMULATE_DRIVER_DRIVER_H
#define EMULATE_DRIVER_DRIVER_H

#include <stdbool.h>
#include "device/cuda_driver.h"
#include "emulate/api/api.h"

/* ---- for tests ----------------------------------------------------------- */

/* Makes the entry point fail with the result, from its n-th call from now on (0
 * = the next call), until a call with NULL ends this. */
void emu_driver_fail(const char *call, int result, int n);
/* Sets whether devices cannot reach each other's memory. */
void emu_driver_no_peers(bool off);
/* Returns how many objects the library has made through the driver and not
 * freed: memory, handles, reserved addresses, mappings, streams, events. */
int emu_driver_live(void);
/* Returns how many entry points the calling thread has called. */
long emu_driver_calls(void);

/* ---- for its own files --------------------------------------------------- */

int emu_driver_lookup(const char *name, void **function, int version);
/* Returns the result that a test has set for the call, or 0, which means to
 * make the call. */
int emu_driver_outcome(const char *name);
void emu_driver_count(int change);
/* Return the result unchanged; if it is success, count an object that was made
 * or freed. */
int emu_driver_allocated(int result);
int emu_driver_freed(int result);
/* Returns the capture mode of the calling thread, by the numbers of the
 * driver. */
int emu_driver_capture_mode(void);

#define EMU_DRIVER_MAY_FAIL()                                                  \
    do {                                                                       \
        int outcome = emu_driver_outcome(__func__ + 3 /* do_ */);              \
        if (outcome)                                                           \
            return outcome;                                                    \
    } while (0)

/* Refuses the call while it could disturb a capture, as the driver does. */
#define EMU_DRIVER_NOT_IN_CAPTURE()                                            \
    do {                                                                       \
        emu_enter();                                                           \
        bool forbidden = emu_capture_forbids(emu_driver_capture_mode());       \
        emu_leave();                                                           \
        if (forbidden)                                                         \
            return cudaErrorStreamCaptureUnsupported;                          \
    } while (0)

#define EMU_DRIVER_DECLARE(name, version, parameters)                          \
    uli_cu_result do_##name parameters;
ULI_CU_CALLS(EMU_DRIVER_DECLARE)

#endif
