/* SPDX-License-Identifier: Apache-2.0
 *
 * See map_device_conformance.h.
 */
#include "transport/map_device_conformance.h"

#include <string.h>
#include <unistd.h>
#include "base/status.h"
#include "device/device.h"
#include "device/fake_driver.h"
#include "device/fake_open.h"

#define OPS (map_device_subject)

static const unsigned char owner[16] = "another process";
static struct fake_driver *driver;

int
map_device_open(void **state)
{
    (void)state;
    driver = fake_driver_open();
    return driver ? 0 : -1;
}

/* No memory and no mapping is left, whatever the case has done. */
int
map_device_nothing_left(void **state)
{
    (void)state;
    driver->failing = NULL;
    return driver->count() == 0 && driver->depth == 0 ? 0 : -1;
}

/* ---- windows of an owner ------------------------------------------------- */

enum { PIECES = 3 };

/* Allocations side by side in the owner's addresses; a window is a part of
 * them. */
struct owned {
    struct uli_share_memory memory[PIECES];
    struct uli_share shares[PIECES];
    struct uli_tr_device_handle handle;
};

static void
owned_create(struct owned *o, int npieces)
{
    int64_t bytes = 0;
    memset(o, 0, sizeof(*o));
    for (int i = 0; i < npieces; i++) {
        assert_status(uli_share_alloc(0, 1000, &o->memory[i]), ULYX_SUCCESS);
        assert_status(uli_share_export(o->memory[i].address, &o->shares[i]),
            ULYX_SUCCESS);
        memset(o->memory[i].address, 'a' + i, (size_t)o->memory[i].bytes);
        o->shares[i].base = o->shares[0].base + (uint64_t)bytes;
        bytes += o->shares[i].bytes;
    }
    o->handle = (struct uli_tr_device_handle){.process = owner,
        .address = o->shares[0].base,
        .bytes = bytes,
        .shares = o->shares,
        .nshares = npieces};
}

static void
owned_destroy(struct owned *o)
{
    uli_share_close_run(o->shares, o->handle.nshares);
    for (int i = 0; i < PIECES; i++)
        if (o->memory[i].address)
            assert_status(uli_share_free(&o->memory[i]), ULYX_SUCCESS);
}

static char *
handle_map(const struct uli_tr_device_handle *handle, void **mapping_p)
{
    void *address = NULL;
    *mapping_p = NULL;
    assert_status(
        OPS->device_map(1, handle, &address, mapping_p), ULYX_SUCCESS);
    assert_non_null(address);
    return address;
}

/* ---- mappings ------------------------------------------------------------ */

/* A window within an allocation: each side reads what the other stores, and the
 * owner's memory stays when the mapping has ended. */
void
map_device_shows_the_window(void **state)
{
    struct owned o;
    void *mapping;
    (void)state;
    owned_create(&o, 1);
    char *mine = (char *)o.memory[0].address + 100;
    o.handle.address += 100;
    o.handle.bytes = 300;
    char *theirs = handle_map(&o.handle, &mapping);
    assert_ptr_not_equal(mine, theirs);
    strcpy(mine, "by the owner");
    assert_string_equal(theirs, "by the owner");
    strcpy(theirs + 287, "by the peer");
    OPS->device_unmap(mapping);
    assert_string_equal(mine + 287, "by the peer");
    owned_destroy(&o);
}

/* Ranks of one process: no shares, only the address, of either device. */
void
map_device_reaches_addresses_within(void **state)
{
    struct owned o;
    (void)state;
    owned_create(&o, 1);
    for (int32_t device = 0; device < 2; device++) {
        const struct uli_tr_device_handle within = {.device = 0,
            .process = owner,
            .address = (uint64_t)(uintptr_t)o.memory[0].address + 16,
            .bytes = 64};
        void *address = NULL, *mapping = &o;
        assert_status(
            OPS->device_map(device, &within, &address, &mapping), ULYX_SUCCESS);
        assert_ptr_equal(address, (char *)o.memory[0].address + 16);
        OPS->device_unmap(mapping);
    }
    owned_destroy(&o);
}

/* A window across several allocations is contiguous here. */
void
map_device_maps_a_run(void **state)
{
    struct owned o;
    void *mapping;
    (void)state;
    owned_create(&o, PIECES);
    int64_t piece = o.memory[0].bytes;
    o.handle.address += (uint64_t)piece - 50;
    o.handle.bytes = piece + 100;
    const char *theirs = handle_map(&o.handle, &mapping);
    assert_int_equal(theirs[0], 'a');
    assert_int_equal(theirs[49], 'a');
    assert_int_equal(theirs[50], 'b');
    assert_int_equal(theirs[49 + piece], 'b');
    assert_int_equal(theirs[50 + piece], 'c');
    assert_int_equal(theirs[99 + piece], 'c');
    OPS->device_unmap(mapping);
    owned_destroy(&o);
}

/* Each map has its own unmap: a mapping lives until its unmap. */
void
map_device_maps_many_times(void **state)
{
    enum { TIMES = 5 };
    void *mappings[TIMES];
    char *bases[TIMES];
    struct owned o;
    (void)state;
    owned_create(&o, 1);
    for (int i = 0; i < TIMES; i++) {
        o.handle.address = o.shares[0].base + (uint64_t)i;
        o.handle.bytes = 10;
        bases[i] = handle_map(&o.handle, &mappings[i]);
    }
    for (int i = 0; i < TIMES; i++) {
        ((char *)o.memory[0].address)[TIMES - 1] = (char)('0' + i);
        for (int k = i; k < TIMES; k++)
            assert_int_equal(bases[k][TIMES - 1 - k], '0' + i);
        OPS->device_unmap(mappings[i]);
    }
    owned_destroy(&o);
}

void
map_device_gives_everything_back(void **state)
{
    (void)state;
    int before = dup(0);
    close(before);
    for (int i = 0; i < 500; i++) {
        struct owned o;
        void *mapping;
        owned_create(&o, 1 + i % PIECES);
        char *theirs = handle_map(&o.handle, &mapping);
        assert_int_equal(theirs[0], 'a');
        OPS->device_unmap(mapping);
        owned_destroy(&o);
        assert_int_equal(driver->count(), 0);
    }
    int after = dup(0); /* descriptors too */
    close(after);
    assert_int_equal(after, before);
}

/* ---- refusals ------------------------------------------------------------ */

static void
must_refuse(const struct uli_tr_device_handle *handle)
{
    int held = driver->count();
    void *address = &held, *mapping = &held;
    assert_status(
        OPS->device_map(1, handle, &address, &mapping), ULYX_ERR_SYSTEM);
    assert_ptr_equal(address, &held);
    assert_ptr_equal(mapping, &held);
    assert_int_equal(driver->count(), held);
}

void
map_device_refuses_bad_windows(void **state)
{
    struct owned o;
    (void)state;
    owned_create(&o, 1);
    const uint64_t base = o.shares[0].base;
    const int64_t bytes = o.shares[0].bytes;
    const struct {
        uint64_t address;
        int64_t bytes;
        int32_t nshares;
    } bad[] = {{base - 1, 10, 1}, {base, bytes + 1, 1}, {base + 1, bytes, 1},
        {base, 0, 1}, {base, -1, 1}, {base, INT64_MAX, 1}, {UINT64_MAX, 10, 1},
        {0, 10, 1}, {base, 10, 0}, {base + (uint64_t)bytes, 1, 1}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct uli_tr_device_handle handle = o.handle;
        handle.address = bad[i].address;
        handle.bytes = bad[i].bytes;
        handle.nshares = bad[i].nshares;
        must_refuse(&handle);
    }
    const struct uli_tr_device_handle nowhere = {.bytes = 10},
                                      empty = {.address = base};
    must_refuse(&nowhere);
    must_refuse(&empty);
    owned_destroy(&o);
}

/* An error of the driver names the driver's call, and leaves nothing mapped. */
void
map_device_names_the_driver(void **state)
{
    struct owned o;
    void *address = NULL, *mapping = NULL;
    (void)state;
    owned_create(&o, 1);
    int held = driver->count();
    driver->failing = "cuMemMap";
    driver->result = 719;
    assert_status(
        OPS->device_map(1, &o.handle, &address, &mapping), ULYX_ERR_SYSTEM);
    driver->failing = NULL;
    assert_non_null(strstr(uli_error_text(), "cuMemMap"));
    assert_null(address);
    assert_null(mapping);
    assert_int_equal(driver->count(), held);
    owned_destroy(&o);
}
