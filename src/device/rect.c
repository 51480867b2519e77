/* SPDX-License-Identifier: Apache-2.0
 *
 * What the driver's strided copies can express: rows with one pitch, which is
 * at least the width of a row, and slices of a whole number of pitches, at
 * least as many as a slice has rows. The limit is
 * CU_DEVICE_ATTRIBUTE_MAX_PITCH, which is the same on all existing devices.
 */
#include "device/device.h"

static const int64_t MAX_PITCH = 0x7FFFFFFF;

static bool
side_fits(const struct uli_device_rect *rect, int64_t pitch, int64_t slice)
{
    if (rect->height > 1 || rect->depth > 1)
        if (pitch < rect->width || pitch > MAX_PITCH)
            return false;
    return rect->depth == 1 ||
           (slice % pitch == 0 && slice / pitch >= rect->height);
}

bool
uli_device_rect_fits(const struct uli_device_rect *rect)
{
    return side_fits(rect, rect->dst_pitch, rect->dst_slice) &&
           side_fits(rect, rect->src_pitch, rect->src_slice);
}
