/* SPDX-License-Identifier: Apache-2.0
 *
 * The conformance suite; see conformance.h. The peer of a transport between
 * processes is a forked child: its buffers have the same addresses as the
 * test's and, once it has filled them, other contents.
 */
#include "transport/conformance.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "support/random.h"
#include "transport/segment.h"

#define OPS (conformance_subject.ops)

int
conformance_open(void **state)
{
    (void)state;
    return !conformance_subject.open || conformance_subject.open() ? 0 : -1;
}

static bool
capability_lacks(uint64_t capability)
{
    return !(OPS->caps & capability);
}

/* ---- the peer ------------------------------------------------------------ */

struct peer {
    pid_t pid;
    unsigned char *memory; /* the address in the peer */
    size_t bytes;
};

static unsigned char
byte_at(size_t i)
{
    return (unsigned char)(i * 31 + (i >> 8) * 7 + 5);
}

static void
memory_fill(unsigned char *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        memory[i] = byte_at(i);
}

static struct peer
start_peer(size_t bytes)
{
    struct peer peer = {getpid(), calloc(bytes, 1), bytes};
    int ready[2];
    char byte = 0;
    assert_non_null(peer.memory);
    if (conformance_subject.same_process) {
        memory_fill(peer.memory, bytes);
        return peer;
    }
    assert_int_equal(pipe(ready), 0);
    peer.pid = fork();
    assert_true(peer.pid >= 0);
    if (peer.pid == 0) {
        memory_fill(peer.memory, bytes);
        if (write(ready[1], &byte, 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return peer;
}

static void
stop_peer(struct peer *peer)
{
    if (!conformance_subject.same_process) {
        kill(peer->pid, SIGKILL);
        waitpid(peer->pid, NULL, 0);
    }
    free(peer->memory);
}

/* ---- selection ----------------------------------------------------------- */

static struct uli_identity
identity_of(int rank, int node, int process)
{
    struct uli_identity made;
    memset(&made, 0, sizeof(made));
    made.protocol = ULI_PROTOCOL;
    made.rank = rank;
    made.node_hash[0] = (uint64_t)node;
    made.process[0] = (unsigned char)process;
    made.uid = 7;
    return made;
}

void
conformance_reports_the_reason(void **state)
{
    (void)state;
    struct uli_settings settings;
    char why[256] = "";
    assert_status(uli_settings_load(&settings), ULYX_SUCCESS);
    bool usable = OPS->usable(&settings, why, sizeof(why));
    assert_true(usable || why[0]);
    for (int i = 0; i < 100; i++) /* repeatable, and keeps no descriptor open */
        assert_int_equal(OPS->usable(&settings, why, sizeof(why)), usable);
    assert_true(strlen(OPS->name) > 0);
}

void
conformance_reach_is_symmetric(void **state)
{
    (void)state;
    int reached = 0;
    for (int code = 0; code < 16; code++) {
        struct uli_identity a = identity_of(0, 1, 1);
        struct uli_identity b = identity_of(1, code & 1, code >> 1 & 1);
        char there[256] = "", back[256] = "";
        b.uid += (uint32_t)(code >> 2 & 1);
        a.memory_kind = b.memory_kind =
            code >> 3 ? ULYX_MEMORY_CUDA : ULYX_MEMORY_HOST;
        bool ab = OPS->reaches(&a, &b, there, sizeof(there));
        bool ba = OPS->reaches(&b, &a, back, sizeof(back));
        assert_int_equal(ab, ba);
        assert_int_equal(ab, !there[0]);
        assert_int_equal(ba, !back[0]);
        reached += ab;
    }
    assert_true(reached > 0 && reached < 16);
}

/* ---- MAP ----------------------------------------------------------------- */

void
conformance_maps(void **state)
{
    (void)state;
    struct uli_segment segment;
    unsigned char *mine, *theirs;
    if (capability_lacks(ULI_TR_MAP))
        return;
    assert_status(
        uli_segment_create(100000, true, false, &segment), ULYX_SUCCESS);
    struct uli_tr_handle handle = {segment.fd, segment.address, 100000};
    assert_status(OPS->window_map(&handle, (void **)&theirs), ULYX_SUCCESS);
    mine = segment.address;
    for (size_t i = 0; i < 100000; i += 997)
        assert_int_equal(theirs[i], 0);
    memory_fill(mine, 50000);
    for (size_t i = 0; i < 50000; i++)
        assert_int_equal(theirs[i], byte_at(i));
    memory_fill(theirs, 100000);
    assert_int_equal(mine[99999], byte_at(99999));
    OPS->window_unmap(theirs, handle.bytes);
    assert_int_equal(mine[70000], byte_at(70000)); /* the owner's is kept */
    uli_segment_destroy(&segment);
}

/* A mapping outlives the owner's, and holds no memory once it is unmapped. */
void
conformance_unmaps(void **state)
{
    (void)state;
    if (capability_lacks(ULI_TR_MAP))
        return;
    for (int i = 0; i < 2000; i++) {
        struct uli_segment segment;
        unsigned char *theirs;
        assert_status(
            uli_segment_create(4096, true, false, &segment), ULYX_SUCCESS);
        struct uli_tr_handle handle = {segment.fd, segment.address, 4096};
        assert_status(OPS->window_map(&handle, (void **)&theirs), ULYX_SUCCESS);
        memset(segment.address, i, 4096);
        if (!conformance_subject.same_process)
            uli_segment_destroy(&segment);
        assert_int_equal(theirs[4095], (unsigned char)i);
        OPS->window_unmap(theirs, 4096);
        uli_segment_destroy(&segment);
    }
    int lowest = dup(0); /* every descriptor was closed */
    assert_in_range(lowest, 0, 40);
    close(lowest);
}

/* A peer's handle is checked: no memory, no size, or a size that does not
 * fit. */
void
conformance_refuses_bad_handles(void **state)
{
    (void)state;
    struct uli_segment segment;
    if (capability_lacks(ULI_TR_MAP))
        return;
    assert_status(
        uli_segment_create(4096, true, false, &segment), ULYX_SUCCESS);
    const struct uli_tr_handle bad[] = {{-1, NULL, 4096},
        {segment.fd, segment.address, 0}, {segment.fd, segment.address, -1}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        void *address = &segment;
        assert_status(OPS->window_map(&bad[i], &address), ULYX_ERR_SYSTEM);
        assert_ptr_equal(address, &segment);
    }
    /* The transport maps by what maps_addresses states. */
    const struct uli_tr_handle bare = {-1, segment.address, 4096};
    void *address = NULL;
    ulyx_status_t status = OPS->window_map(&bare, &address);
    assert_int_equal(status == ULYX_SUCCESS, OPS->maps_addresses);
    if (status == ULYX_SUCCESS)
        OPS->window_unmap(address, 4096);
    uli_segment_destroy(&segment);
}

/* A peer's memory file is refused when it could shrink, or is shorter than the
 * handle announces: the next load would end in SIGBUS. */
void
conformance_refuses_unsafe_files(void **state)
{
    (void)state;
    if (capability_lacks(ULI_TR_MAP))
        return;
    for (int seals = 0; seals <= ULI_SEGMENT_SEALS; seals++) {
        if (seals & ~ULI_SEGMENT_SEALS)
            continue;
        bool short_file = seals == ULI_SEGMENT_SEALS;
        int fd = uli_segment_file("ulyx-test");
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, short_file ? 4096 : 8192), 0);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
        const struct uli_tr_handle handle = {fd, NULL, 8192};
        void *address = &fd;
        assert_status(OPS->window_map(&handle, &address), ULYX_ERR_SYSTEM);
        assert_ptr_equal(address, &fd);
        close(fd);
    }
}

/* ---- READ ---------------------------------------------------------------- */

void
conformance_probes(void **state)
{
    (void)state;
    if (capability_lacks(ULI_TR_READ))
        return;
    struct peer peer = start_peer(64);
    assert_status(OPS->read_probe(peer.pid, &uli_tr_probe_word), ULYX_SUCCESS);
    assert_status(OPS->read_probe(peer.pid, peer.memory), ULYX_ERR_UNSUPPORTED);
    assert_status(
        OPS->read_probe(0x3ffffff0, &uli_tr_probe_word), ULYX_ERR_UNSUPPORTED);
    assert_true(strlen(ulyx_last_error()) > 0);
    stop_peer(&peer);
}

/* Random cuts of one byte count on both sides, with gaps between the pieces,
 * some pieces empty; the oracle goes byte by byte. */
struct pieces {
    struct iovec *list;
    size_t count;
};

static struct pieces
pieces_cut(struct test_random *random, unsigned char *base, size_t room,
    size_t total, size_t longest)
{
    struct pieces cuts = {calloc(2 * total + 8, sizeof(struct iovec)), 0};
    size_t at = 0, slack = room - total;
    while (total > 0) {
        size_t gap = (size_t)test_random_in(random, 0, 3);
        size_t take = (size_t)test_random_in(random, 0, (int64_t)longest);
        gap = gap < slack ? gap : slack;
        take = take < total ? take : total;
        at += gap;
        slack -= gap;
        cuts.list[cuts.count].iov_base = base + at;
        cuts.list[cuts.count++].iov_len = take;
        at += take;
        total -= take;
    }
    return cuts;
}

static void
check_against_oracle(const struct pieces *local, const struct pieces *remote,
    const unsigned char *there)
{
    size_t r = 0, at = 0;
    for (size_t l = 0; l < local->count; l++) {
        const unsigned char *byte = local->list[l].iov_base;
        for (size_t i = 0; i < local->list[l].iov_len; i++) {
            while (at == remote->list[r].iov_len)
                r++, at = 0;
            const unsigned char *from = remote->list[r].iov_base;
            size_t offset = (size_t)(from - there) + at++;
            if (byte[i] != byte_at(offset))
                fail_msg(
                    "piece %zu byte %zu is not byte %zu there", l, i, offset);
        }
    }
}

static void
read_random(struct test_random *random, struct peer *peer, size_t total,
    size_t local_longest, size_t remote_longest)
{
    size_t room = peer->bytes;
    unsigned char *memory = malloc(room);
    memset(memory, 0xEE, room);
    struct pieces local =
        pieces_cut(random, memory, room, total, local_longest);
    struct pieces remote =
        pieces_cut(random, peer->memory, room, total, remote_longest);
    assert_status(OPS->read(peer->pid, local.list, local.count, remote.list,
                      remote.count),
        ULYX_SUCCESS);
    check_against_oracle(&local, &remote, peer->memory);
    /* No byte between the pieces was touched. */
    size_t touched = 0;
    for (size_t l = 0; l < local.count; l++) {
        unsigned char *end =
            (unsigned char *)local.list[l].iov_base + local.list[l].iov_len;
        unsigned char *next =
            l + 1 < local.count ? local.list[l + 1].iov_base : memory + room;
        while (end < next)
            touched += *end++ != 0xEE;
    }
    assert_int_equal(touched, 0);
    free(local.list);
    free(remote.list);
    free(memory);
}

void
conformance_reads_pieces(void **state)
{
    (void)state;
    struct test_random random = {test_seed(11)};
    if (capability_lacks(ULI_TR_READ))
        return;
    struct peer peer = start_peer(1 << 16);
    for (int64_t i = 0; i < test_draws(60); i++)
        read_random(&random, &peer, (size_t)test_random_in(&random, 0, 60000),
            (size_t)test_random_in(&random, 1, 9000),
            (size_t)test_random_in(&random, 1, 9000));
    stop_peer(&peer);
}

/* Far beyond IOV_MAX on either side, and on both. */
void
conformance_reads_many_pieces(void **state)
{
    (void)state;
    struct test_random random = {test_seed(12)};
    if (capability_lacks(ULI_TR_READ))
        return;
    struct peer peer = start_peer(1 << 16);
    read_random(&random, &peer, 50000, 3, 50000);
    read_random(&random, &peer, 50000, 50000, 3);
    read_random(&random, &peer, 50000, 3, 3);
    stop_peer(&peer);
}

void
conformance_names_a_lost_peer(void **state)
{
    (void)state;
    char byte;
    if (capability_lacks(ULI_TR_READ) || conformance_subject.same_process)
        return;
    struct peer peer = start_peer(64);
    struct iovec local = {&byte, 1}, remote = {peer.memory, 1};
    struct iovec nowhere = {(void *)(uintptr_t)4096, 1};
    assert_status(OPS->read(peer.pid, &local, 1, &nowhere, 1), ULYX_ERR_SYSTEM);
    pid_t pid = peer.pid;
    stop_peer(&peer);
    assert_status(OPS->read(pid, &local, 1, &remote, 1), ULYX_ERR_RANK_LOST);
}

/* ---- missing capabilities ------------------------------------------------ */

void
conformance_refuses_what_it_lacks(void **state)
{
    (void)state;
    const struct uli_tr_device_handle device = {.bytes = 4096};
    struct uli_tr_handle handle = {-1, NULL, 4096};
    void *address = &handle;
    char byte;
    struct iovec piece = {&byte, 1};
    if (capability_lacks(ULI_TR_MAP)) {
        assert_status(OPS->window_map(&handle, &address), ULYX_ERR_UNSUPPORTED);
        assert_ptr_equal(address, &handle);
        OPS->window_unmap(NULL, 0);
    }
    if (capability_lacks(ULI_TR_READ)) {
        assert_status(OPS->read_probe(getpid(), &uli_tr_probe_word),
            ULYX_ERR_UNSUPPORTED);
        assert_status(
            OPS->read(getpid(), &piece, 1, &piece, 1), ULYX_ERR_UNSUPPORTED);
    }
    if (capability_lacks(ULI_TR_MAP_DEVICE)) {
        void *mapping = &handle;
        assert_status(OPS->device_map(0, &device, &address, &mapping),
            ULYX_ERR_UNSUPPORTED);
        assert_ptr_equal(address, &handle);
        assert_ptr_equal(mapping, &handle);
        OPS->device_unmap(NULL);
    }
    /* Callers check the capability, never the slot. */
    assert_int_equal(OPS->net != NULL, !capability_lacks(ULI_TR_PUT));
    assert_int_equal(OPS->batch != NULL, !capability_lacks(ULI_TR_BATCH));
    /* The stubs are the transport that lacks everything. */
    assert_int_equal(uli_tr_stubs.caps, 0);
    assert_status(
        uli_tr_stubs.window_map(&handle, &address), ULYX_ERR_UNSUPPORTED);
    assert_status(uli_tr_stubs.read(getpid(), &piece, 1, &piece, 1),
        ULYX_ERR_UNSUPPORTED);
}
