/* SPDX-License-Identifier: Apache-2.0
 *
 * The node's identity, from /proc; see node.h.
 */
#include "topology/node.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/size.h"
#include "topology/node_cgroup.h"

/* FNV-1a over 64 bits; the two words of a hash differ in their start. */
static uint64_t
hash_bytes(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *byte = bytes;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static void
hash_both(uint64_t hash_p[2], const void *bytes, size_t count)
{
    hash_p[0] = hash_bytes(hash_p[0], bytes, count);
    hash_p[1] = hash_bytes(hash_p[1], bytes, count);
}

/* Is /proc not mounted, or not readable? That is then so for all processes of
 * this node. Any other error is a momentary one of this process, and must not
 * give the process the identity of another node. */
static bool
proc_is_hidden(int number)
{
    return number == ENOENT || number == ENOTDIR || number == EACCES ||
           number == EPERM;
}

/* *inode_p is 0 if /proc is hidden. */
static ulyx_status_t
namespace_inode(const char *path, uint64_t *inode_p)
{
    struct stat status;
    *inode_p = 0;
    if (stat(path, &status) == 0)
        *inode_p = (uint64_t)status.st_ino;
    else if (!proc_is_hidden(errno))
        return uli_error_errno("%s, by which hosts are distinguished", path);
    return ULYX_SUCCESS;
}

/* Hashes the boot id, or the host's name if /proc is hidden. */
static ulyx_status_t
hash_machine(uint64_t hash_p[2])
{
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    char text[128] = {0};
    FILE *file = fopen(path, "re");
    if (!file && !proc_is_hidden(errno))
        return uli_error_errno("%s, by which hosts are distinguished", path);
    if (!file || !fgets(text, sizeof(text), file))
        gethostname(text, sizeof(text) - 1);
    if (file)
        fclose(file);
    hash_both(hash_p, text, strlen(text));
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_node_hash(const struct uli_settings *settings, uint64_t hash_p[2])
{
    uint64_t network;
    hash_p[0] = UINT64_C(0xcbf29ce484222325);
    hash_p[1] = UINT64_C(0x9ae16a3b2f90404f);
    if (settings->host_id[0]) {
        hash_both(hash_p, settings->host_id, strlen(settings->host_id));
        return ULYX_SUCCESS;
    }
    ULI_TRY(namespace_inode("/proc/self/ns/net", &network));
    ULI_TRY(hash_machine(hash_p));
    hash_both(hash_p, &network, sizeof(network));
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_node_machine_hash(uint64_t *hash_p)
{
    uint64_t hash[2] = {
        UINT64_C(0xcbf29ce484222325), UINT64_C(0x9ae16a3b2f90404f)};
    ULI_TRY(hash_machine(hash));
    *hash_p = hash[0];
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_node_pid_namespace(uint64_t *inode_p)
{
    return namespace_inode("/proc/self/ns/pid", inode_p);
}

/* The calling thread's affinity. The set grows until the kernel's fits:
 * machines have more than 1024 cores. NULL: the kernel does not report it. The
 * caller frees the set with CPU_FREE. */
static cpu_set_t *
get_affinity(size_t *bytes_p)
{
    for (int32_t size = 1024; size <= 1 << 20; size *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)size);
        if (!set)
            return NULL;
        *bytes_p = CPU_ALLOC_SIZE((size_t)size);
        if (sched_getaffinity(0, *bytes_p, set) == 0)
            return set;
        CPU_FREE(set);
    }
    return NULL;
}

/* The quota of the process's groups; read once, because it is queried often. */
static pthread_once_t quota_once = PTHREAD_ONCE_INIT;
static int32_t quota_cores;
static uint64_t quota_group;

static void
read_quota(void)
{
    quota_cores = uli_cgroup_cores(&uli_cgroups, &quota_group);
}

int32_t
uli_node_quota(void)
{
    pthread_once(&quota_once, read_quota);
    return quota_cores;
}

int32_t
uli_node_cores(void)
{
    size_t bytes;
    cpu_set_t *set = get_affinity(&bytes);
    long count = set ? CPU_COUNT_S(bytes, set) : sysconf(_SC_NPROCESSORS_ONLN);
    CPU_FREE(set);
    pthread_once(&quota_once, read_quota);
    return (int32_t)uli_max(uli_min(count, quota_cores), 1);
}

int32_t
uli_node_core_list(int32_t *cores_p, int32_t capacity)
{
    size_t bytes;
    cpu_set_t *set = get_affinity(&bytes);
    int32_t count = 0;
    for (int32_t core = 0; set && core < (int32_t)bytes * 8; core++)
        if (CPU_ISSET_S((size_t)core, bytes, set)) {
            if (count < capacity)
                cores_p[count] = core;
            count++;
        }
    CPU_FREE(set);
    return count;
}

uint64_t
uli_node_cores_hash(void)
{
    size_t bytes;
    cpu_set_t *set = get_affinity(&bytes);
    uint64_t hash =
        set ? hash_bytes(UINT64_C(0xcbf29ce484222325), set, bytes) : 0;
    CPU_FREE(set);
    pthread_once(&quota_once, read_quota);
    return quota_group ? hash_bytes(hash, &quota_group, sizeof(quota_group))
                       : hash;
}
