/* SPDX-License-Identifier: Apache-2.0
 *
 * See imports.h. One list a process, under one lock that is held over the
 * driver's call: two threads that take the same allocation at the same time
 * must not map it twice, and mappings are made at creation only. The list is
 * short (an allocation an entry), so it is searched from the front.
 */
#include "transport/nvlink/imports.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "base/list.h"
#include "base/status.h"

struct uli_import {
    struct uli_list in_all;
    int64_t holders;
    unsigned char process[16];
    uint64_t base, buffer_id; /* at the owner */
    struct uli_share_import mapped;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct uli_list all = {&all, &all};
static int64_t count;

static struct uli_import *
find(int32_t device, const unsigned char process[16],
    const struct uli_share *share)
{
    for (struct uli_list *n = all.next; n != &all; n = n->next) {
        struct uli_import *import =
            ULI_CONTAINER_OF(n, struct uli_import, in_all);
        if (import->buffer_id == share->buffer_id &&
            import->base == share->base && import->mapped.device == device &&
            memcmp(import->process, process, sizeof(import->process)) == 0)
            return import;
    }
    return NULL;
}

static ulyx_status_t
make(int32_t device, const unsigned char process[16],
    const struct uli_share *share, struct uli_import **import_p)
{
    struct uli_import *import = calloc(1, sizeof(*import));
    if (!import)
        return uli_error(
            ULYX_ERR_NO_MEMORY, "an import of device memory: no memory");
    ulyx_status_t status = uli_share_map(device, share, &import->mapped);
    if (status != ULYX_SUCCESS) {
        free(import);
        return status;
    }
    memcpy(import->process, process, sizeof(import->process));
    import->base = share->base;
    import->buffer_id = share->buffer_id;
    uli_list_append(&all, &import->in_all);
    count++;
    *import_p = import;
    return ULYX_SUCCESS;
}

static ulyx_status_t
take(int32_t device, const unsigned char process[16],
    const struct uli_share *share, struct uli_import **import_p)
{
    struct uli_import *import = find(device, process, share);
    if (!import)
        ULI_TRY(make(device, process, share, &import));
    if (import->mapped.bytes != share->bytes ||
        import->mapped.form != share->form)
        return uli_error(ULYX_ERR_SYSTEM,
            "a peer's device memory at 0x%" PRIx64 ": %" PRId64
            " bytes of form %d before, %" PRId64 " of form %d now",
            share->base, import->mapped.bytes, import->mapped.form,
            share->bytes, share->form);
    import->holders++;
    *import_p = import;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_import_take(int32_t device, const unsigned char process[16],
    const struct uli_share *share, struct uli_import **import_p, void **base_p)
{
    struct uli_import *import = NULL;
    pthread_mutex_lock(&lock);
    ulyx_status_t status = take(device, process, share, &import);
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
        count--;
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
    int64_t now = count;
    pthread_mutex_unlock(&lock);
    return now;
}
