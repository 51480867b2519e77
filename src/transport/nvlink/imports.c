/* SPDX-License-Identifier: Apache-2.0
 *
 * See imports.h. One list per process, under one lock, which is held during the
 * driver's call: two threads that take the same allocation at the same time
 * must not map it twice, and mappings are made at attach, never in execute. The
 * list is short (one entry per run of allocations), so it is searched from the
 * front.
 */
#include "transport/nvlink/imports.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "base/list.h"
#include "base/size.h"
#include "base/status.h"

struct uli_import {
    struct uli_list in_all;
    int64_t holders;
    unsigned char process[16];
    uint64_t base; /* at the owner */
    struct uli_share_import mapped;
    int32_t nids;
    uint64_t buffer_ids[]; /* at the owner */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct uli_list all = {&all, &all};
static int64_t nimports;

static bool
is_same_run(const struct uli_import *import, const struct uli_share *shares,
    int32_t count)
{
    bool same = import->base == shares[0].base && import->nids == count;
    for (int32_t i = 0; same && i < count; i++)
        same = import->buffer_ids[i] == shares[i].buffer_id;
    return same;
}

static struct uli_import *
imports_find(int32_t device, const unsigned char process[16],
    const struct uli_share *shares, int32_t count)
{
    for (struct uli_list *n = all.next; n != &all; n = n->next) {
        struct uli_import *import =
            ULI_CONTAINER_OF(n, struct uli_import, in_all);
        if (import->mapped.device == device &&
            memcmp(import->process, process, sizeof(import->process)) == 0 &&
            is_same_run(import, shares, count))
            return import;
    }
    return NULL;
}

static ulyx_status_t
imports_make(int32_t device, const unsigned char process[16],
    const struct uli_share *shares, int32_t count, struct uli_import **import_p)
{
    struct uli_import *import = calloc(
        1, sizeof(*import) + (size_t)count * sizeof(import->buffer_ids[0]));
    if (!import)
        return uli_error(
            ULYX_ERR_NO_MEMORY, "an import of device memory: no memory");
    ulyx_status_t status =
        uli_share_map(device, shares, count, &import->mapped);
    if (status != ULYX_SUCCESS) {
        free(import);
        return status;
    }
    memcpy(import->process, process, sizeof(import->process));
    import->base = shares[0].base;
    import->nids = count;
    for (int32_t i = 0; i < count; i++)
        import->buffer_ids[i] = shares[i].buffer_id;
    uli_list_append(&all, &import->in_all);
    nimports++;
    *import_p = import;
    return ULYX_SUCCESS;
}

static int64_t
run_bytes(const struct uli_share *shares, int32_t count)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < count; i++)
        bytes = uli_sat_add(bytes, shares[i].bytes);
    return bytes;
}

static ulyx_status_t
imports_take(int32_t device, const unsigned char process[16],
    const struct uli_share *shares, int32_t count, struct uli_import **import_p)
{
    struct uli_import *import = imports_find(device, process, shares, count);
    int64_t bytes = run_bytes(shares, count);
    if (!import)
        ULI_TRY(imports_make(device, process, shares, count, &import));
    if (import->mapped.bytes != bytes || import->mapped.form != shares[0].form)
        return uli_error(ULYX_ERR_SYSTEM,
            "a peer's device memory at 0x%" PRIx64 ": %" PRId64
            " bytes of form %d before, %" PRId64 " of form %d now",
            shares[0].base, import->mapped.bytes, import->mapped.form, bytes,
            shares[0].form);
    import->holders++;
    *import_p = import;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_import_take(int32_t device, const unsigned char process[16],
    const struct uli_share *shares, int32_t count, struct uli_import **import_p,
    void **base_p)
{
    struct uli_import *import = NULL;
    if (count < 1)
        return uli_error(ULYX_ERR_SYSTEM,
            "a peer's device memory: the message has no share of it");
    pthread_mutex_lock(&lock);
    ulyx_status_t status =
        imports_take(device, process, shares, count, &import);
    pthread_mutex_unlock(&lock);
    if (status != ULYX_SUCCESS)
        return status;
    *import_p = import;
    *base_p = import->mapped.address;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_import_drop(struct uli_import *import)
{
    ulyx_status_t status = ULYX_SUCCESS;
    pthread_mutex_lock(&lock);
    if (--import->holders == 0) {
        uli_list_remove(&import->in_all);
        nimports--;
        status = uli_share_unmap(&import->mapped);
        free(import);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int64_t
uli_import_count(void)
{
    pthread_mutex_lock(&lock);
    int64_t now = nimports;
    pthread_mutex_unlock(&lock);
    return now;
}
