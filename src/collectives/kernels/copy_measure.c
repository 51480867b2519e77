/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of copies by measurement. The copies timed are those of an
 * exchange: rows of half of a pitch gathered (two ranks' heads), rows laid out
 * one pitch apart, and both ranks' rows fanned out; short rows as of KV heads,
 * long ones as of query heads, because ways that are alike for short rows may
 * differ by a fifth for long ones. Several cores copy at a time, as ranks do,
 * because a way that is best for one core may be worst where all cores need
 * memory.
 *
 * Candidates take turns in each round, and the shortest time of a candidate
 * counts, so that other load of the machine does not matter unless it lasts.
 * Sizes differ in where their bytes lie: those of small calls in the
 * second-level cache, those of medium and large ones in memory only. These are
 * flushed from the caches before each timing (on x86), because the last-level
 * cache of a server holds more than any arrays that could be filled in a few
 * milliseconds.
 *
 * Streaming stores are measured with a reader, because stored bytes are read
 * soon. The same core reads half of the destination back, as much as it gets of
 * a call of two ranks; another core would first have to fetch the other half.
 */
#include "collectives/kernels/copy_measure.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include "base/size.h"
#include "base/status.h"
#include "base/system/clock.h"
#include "base/system/cpu.h"
#include "base/system/thread.h"
#include "collectives/kernels/copy_kernel.h"
#include "topology/node.h"

enum {
    ARRAY_BYTES = 2 << 20,
    ROUNDS = 3,
    DUEL_ROUNDS = 5,  /* of the best way against the default */
    STORE_ROUNDS = 5, /* of the two kinds of stores */
    MOST_CORES = 4,   /* used at one time */
    /* By how many percent a default must take longer than a way that replaces
     * it; more where only one core measures, because several cores may differ
     * from one. */
    BETTER = 10,
    BETTER_ALONE = 25,
};
#define LIMIT_NS INT64_C(100000000)

static const struct uli_copy_way candidates[] = {
    {ULI_HINT_NONE, 1, 0, false},
    {ULI_HINT_ONCE, 1, 8, false},
    {ULI_HINT_ONCE, 2, 8, false},
    {ULI_HINT_NONE, 4, 0, false},
    {ULI_HINT_ONCE, 4, 16, false},
    {ULI_HINT_L2, 4, 16, false},
    {ULI_HINT_L2, 4, 32, false},
    {ULI_HINT_L2, 8, 8, false},
    {ULI_HINT_L1, 4, 8, false},
};
enum { CANDIDATES = sizeof(candidates) / sizeof(candidates[0]) };

/* Bytes of a call and of one timing, and whether they lie in memory only. */
static const struct {
    int64_t call_bytes, sample_bytes;
    bool cold;
} sizes[ULI_COPY_SIZES] = {{64 << 10, 512 << 10, false},
    {512 << 10, 512 << 10, true}, {1 << 20, 1 << 20, true}};

/* Cores take each step together: the last one to arrive starts all. */
struct crew {
    int32_t cores;
    int64_t until_ns;
    _Atomic int32_t came;
    _Atomic int32_t over; /* a core is missing, or time is over */
    int32_t best;         /* set by the leading core, for the duel */
    struct uli_copy_choice choice;
};

/* One core's part of the measurement. */
struct bench {
    struct crew *crew;
    bool leads; /* the times of this core count */
    int32_t step;
    unsigned char *dst, *src;
    unsigned char seen; /* keeps the reads from being removed */
};

/* Waits for the other cores; false: time is over. */
static bool
bench_meet(struct bench *bench)
{
    struct crew *crew = bench->crew;
    int32_t all = ++bench->step * crew->cores;
    atomic_fetch_add(&crew->came, 1);
    while (atomic_load(&crew->came) < all && !atomic_load(&crew->over))
        if (uli_clock_ns() > crew->until_ns)
            atomic_store(&crew->over, 1);
    return !atomic_load(&crew->over);
}

/* Bytes of a token that go to one of two ranks: few KV heads, many query heads.
 * Half of a call is of each. */
static const int64_t row_bytes[] = {1024, 4096};
enum { ROWS = sizeof(row_bytes) / sizeof(row_bytes[0]) };

/* Copies one rank's rows, every second row of twice as many bytes, from the
 * source to [at, at + bytes) of the destination, or the other way round. The
 * rows between them are of another rank and stay unread: if they were read
 * too, a way without prefetches would gain by lines that the hardware had
 * fetched in vain. */
static void
rows_copy(struct bench *bench, const struct uli_copy_way *way,
    enum uli_copy_source source, int64_t row, int64_t at, int64_t bytes)
{
    bool apart = source == ULI_ROWS_APART;
    struct uli_box box = {.extent = {1, 1, bytes / row},
        .run_bytes = row,
        .dst_stride = {0, 0, apart ? row : 2 * row},
        .src_stride = {0, 0, apart ? 2 * row : row}};
    struct uli_box_span rows = {0, box.extent[2]};
    uli_box_copy(&box, rows, bench->dst + (apart ? at : 2 * at),
        bench->src + (apart ? 2 * at : at), way);
}

/* Copies both ranks' rows out of [at, at + bytes) of the source to one half
 * each of [at, at + bytes) of the destination. */
static void
rows_fan(struct bench *bench, const struct uli_copy_way *way, int64_t row,
    int64_t at, int64_t bytes)
{
    struct uli_box boxes[2];
    struct uli_fan_part parts[2];
    struct uli_box_span rows = {0, bytes / (2 * row)};
    for (int i = 0; i < 2; i++) {
        boxes[i] = (struct uli_box){.extent = {1, 1, rows.end},
            .run_bytes = row,
            .dst_offset = i * bytes / 2,
            .dst_stride = {0, 0, row},
            .src_offset = i * row,
            .src_stride = {0, 0, 2 * row}};
        parts[i] = (struct uli_fan_part){&boxes[i], bench->dst + at};
    }
    uli_boxes_copy(parts, 2, rows, bench->src + at, way);
}

/* Copies a call of call_bytes: rows lie apart in its source, or else in its
 * destination, or are fanned out. */
static void
call_copy(struct bench *bench, const struct uli_copy_way *way,
    enum uli_copy_source source, int64_t call_bytes)
{
    int64_t part = call_bytes / ROWS;
    for (int i = 0; i < ROWS; i++) {
        if (source == ULI_ROWS_FANNED)
            rows_fan(bench, way, row_bytes[i], i * part, part);
        else
            rows_copy(bench, way, source, row_bytes[i], i * part, part);
    }
}

/* Flushes what a call touches: rows apart are spread over twice its bytes. */
static void
call_flush(struct bench *bench, enum uli_copy_source source, int64_t call_bytes)
{
    uli_cpu_flush(
        bench->src, source == ULI_ROWS_APART ? 2 * call_bytes : call_bytes);
    uli_cpu_flush(
        bench->dst, source == ULI_ROWS_ON ? 2 * call_bytes : call_bytes);
}

/* Reads half of what the last call has written. */
static void
call_read(struct bench *bench, int64_t call_bytes)
{
    const unsigned char *from = bench->dst;
    uint64_t sum = 0, word;
    for (int64_t i = 0; i + 8 <= call_bytes / 2; i += 8) {
        memcpy(&word, from + i, 8);
        sum ^= word;
    }
    bench->seen ^= (unsigned char)(sum ^ sum >> 8);
}

/* ---- ways ---------------------------------------------------------------- */

/* Nanoseconds of a sample; 0: time is over. */
static double
way_sample(struct bench *bench, const struct uli_copy_way *way,
    enum uli_copy_size size, enum uli_copy_source source)
{
    if (sizes[size].cold)
        call_flush(bench, source, sizes[size].call_bytes);
    if (!bench_meet(bench))
        return 0;
    int64_t begin = uli_clock_ns();
    for (int64_t done = 0; done < sizes[size].sample_bytes;
         done += sizes[size].call_bytes)
        call_copy(bench, way, source, sizes[size].call_bytes);
    return (double)uli_max(uli_clock_ns() - begin, 1);
}

/* Ways that are compared for calls of a size and source. */
struct contest {
    enum uli_copy_size size;
    enum uli_copy_source source;
    struct uli_copy_way ways[CANDIDATES + 1];
    double least[CANDIDATES + 1]; /* ns */
};

/* Sets the least times of the first `count` ways, whose order changes with the
 * round. False: time is over. */
static bool
contest_time(
    struct bench *bench, struct contest *contest, int count, int rounds)
{
    for (int i = 0; i < count; i++)
        contest->least[i] = INFINITY;
    for (int n = 0; n < rounds * count; n++) {
        int i = (n + n / count) % count;
        double ns = way_sample(
            bench, &contest->ways[i], contest->size, contest->source);
        if (ns == 0)
            return false;
        contest->least[i] = fmin(contest->least[i], ns);
    }
    return true;
}

/* Compares all ways, then the best with the default once more, because it must
 * be clearly better to replace it. False: time is over. */
static bool
contest_hold(struct bench *bench, struct contest *contest)
{
    struct crew *crew = bench->crew;
    if (!contest_time(bench, contest, CANDIDATES + 1, ROUNDS))
        return false;
    int best = 0;
    for (int i = 1; i < CANDIDATES; i++)
        best = contest->least[i] < contest->least[best] ? i : best;
    if (bench->leads)
        crew->best = best;
    if (!bench_meet(bench))
        return false;
    contest->ways[0] = contest->ways[crew->best];
    contest->ways[1] = contest->ways[CANDIDATES];
    return contest_time(bench, contest, 2, DUEL_ROUNDS);
}

/* Does what took ns take clearly less than the default, which took usual_ns? */
static bool
is_clearly_better(const struct crew *crew, double ns, double usual_ns)
{
    int percent = crew->cores > 1 ? BETTER : BETTER_ALONE;
    return ns * (100 + percent) < usual_ns * 100;
}

/* Small calls are measured with ordinary stores and others with streaming ones,
 * as most of them are made. False: time is over. */
static bool
way_measure(
    struct bench *bench, enum uli_copy_size size, enum uli_copy_source source)
{
    struct contest contest = {.size = size, .source = source};
    struct uli_copy_choice *choice = &bench->crew->choice;
    double bytes = (double)sizes[size].sample_bytes;
    memcpy(contest.ways, candidates, sizeof(candidates));
    contest.ways[CANDIDATES] = uli_copy_defaults()->ways[size][source];
    for (int i = 0; i <= CANDIDATES; i++)
        contest.ways[i].stream = size != ULI_COPY_SMALL;
    if (!contest_hold(bench, &contest))
        return false;
    if (!bench->leads)
        return true;
    bool better =
        is_clearly_better(bench->crew, contest.least[0], contest.least[1]);
    if (better)
        choice->ways[size][source] = contest.ways[0];
    choice->ways[size][source].stream = false;
    choice->figures[size][source] = (struct uli_copy_figure){
        bytes / contest.least[better ? 0 : 1], bytes / contest.least[1]};
    return true;
}

/* ---- stores -------------------------------------------------------------- */

/* As way_sample. After the cores have met, all see what the leader has chosen
 * before. */
static double
store_sample(struct bench *bench, bool stream, int64_t call_bytes)
{
    const struct uli_copy_choice *choice = &bench->crew->choice;
    if (!bench_meet(bench))
        return 0;
    enum uli_copy_source source = choice->fan_bytes == ULI_COPY_MEDIUM_BYTES
                                      ? ULI_ROWS_FANNED
                                      : ULI_ROWS_APART;
    struct uli_copy_way way = choice->ways[ULI_COPY_MEDIUM][source];
    call_flush(bench, source, call_bytes);
    if (!bench_meet(bench))
        return 0;
    int64_t begin = uli_clock_ns();
    way.stream = stream;
    call_copy(bench, &way, source, call_bytes);
    call_read(bench, call_bytes);
    return (double)uli_max(uli_clock_ns() - begin, 1);
}

/* Do streaming stores pay in calls of this size? Where they are the default,
 * they do unless ordinary ones are clearly better: a choice is kept for long,
 * and a call of four ranks on two cores takes half as long with them where this
 * measurement shows a fifth. False also where time is over. */
static bool
streams_at(struct bench *bench, int64_t call_bytes)
{
    bool usual = call_bytes >= uli_copy_defaults()->stream_bytes;
    double least[2] = {INFINITY, INFINITY};
    for (int n = 0; n < 2 * STORE_ROUNDS; n++) {
        double ns = store_sample(bench, n % 2 != 0, call_bytes);
        if (ns == 0)
            return false;
        least[n % 2] = fmin(least[n % 2], ns);
    }
    return usual ? !is_clearly_better(bench->crew, least[0], least[1])
                 : least[1] < least[0];
}

/* Tries three sizes, from 1 MiB down; the bound is the last one before the
 * first at which streaming does not pay, or a default above them all. Large
 * calls stream unmeasured, because no cache of a core holds what they write;
 * small ones do not, because what they write may be in that cache already. All
 * cores take all steps; the leader's result counts. */
static void
stores_measure(struct bench *bench)
{
    struct crew *crew = bench->crew;
    const int64_t most = 1 << 20, usual = uli_copy_defaults()->stream_bytes;
    int64_t stream_bytes = usual > most ? usual : ULI_COPY_LARGE_BYTES;
    bool pays = true;
    for (int64_t bytes = most; bytes >= 256 << 10; bytes /= 2) {
        pays = streams_at(bench, bytes) && pays;
        if (pays)
            stream_bytes = bytes / 4 * 3; /* calls of whole tokens have less */
    }
    if (bench->leads && !atomic_load(&crew->over))
        crew->choice.stream_bytes = stream_bytes;
}

/* ---- fan-outs ------------------------------------------------------------ */

static bool
apart_wins(const struct uli_copy_choice *choice, enum uli_copy_size size)
{
    const struct uli_copy_figure *figures = choice->figures[size];
    return figures[ULI_ROWS_APART].chosen * 100 >
           figures[ULI_ROWS_FANNED].chosen * (100 + BETTER);
}

/* From which size on calls fan out, by the figures: they do by default. */
static void
fan_choose(struct uli_copy_choice *choice)
{
    if (apart_wins(choice, ULI_COPY_LARGE))
        choice->fan_bytes = INT64_MAX;
    else if (apart_wins(choice, ULI_COPY_MEDIUM))
        choice->fan_bytes = ULI_COPY_LARGE_BYTES;
}

/* ---- the measurement ----------------------------------------------------- */

/* Shared memory with ordinary pages, as windows are. */
static unsigned char *
arrays_map(void)
{
    int flags = MAP_SHARED | MAP_ANONYMOUS;
#ifdef MAP_POPULATE
    flags |= MAP_POPULATE;
#endif
    void *memory =
        mmap(NULL, 2 * ARRAY_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void *
bench_run(void *context)
{
    struct bench *bench = context;
    bench->dst = arrays_map();
    if (!bench->dst) {
        atomic_store(&bench->crew->over, 1);
        return NULL;
    }
    bench->src = bench->dst + ARRAY_BYTES;
    bool going = true;
    /* Small calls never fan out. */
    for (int n = 0; going && n < ULI_COPY_SIZES * ULI_COPY_SOURCES; n++)
        if (n != ULI_COPY_SMALL * ULI_COPY_SOURCES + ULI_ROWS_FANNED)
            going =
                way_measure(bench, (enum uli_copy_size)(n / ULI_COPY_SOURCES),
                    (enum uli_copy_source)(n % ULI_COPY_SOURCES));
    if (going && bench->leads)
        fan_choose(&bench->crew->choice);
    if (going && uli_copy_kernel()->fence)
        stores_measure(bench);
    munmap(bench->dst, 2 * ARRAY_BYTES);
    return NULL;
}

bool
uli_copy_measure(struct uli_copy_choice *choice_p)
{
    struct crew crew = {.choice = *uli_copy_defaults(),
        .cores = uli_node_cores() < MOST_CORES ? uli_node_cores() : MOST_CORES,
        .until_ns = uli_clock_ns() + LIMIT_NS};
    struct bench benches[MOST_CORES];
    pthread_t threads[MOST_CORES];
    int32_t started = 1;
    for (int32_t i = 0; i < crew.cores; i++)
        benches[i] = (struct bench){.crew = &crew, .leads = i == 0};
    while (started < crew.cores &&
           uli_thread_start("measuring", bench_run, &benches[started],
               &threads[started]) == ULYX_SUCCESS)
        started++;
    if (started < crew.cores)
        atomic_store(&crew.over, 1);
    bench_run(&benches[0]);
    for (int32_t i = 1; i < started; i++)
        pthread_join(threads[i], NULL);
    *choice_p = crew.choice;
    return !atomic_load(&crew.over);
}
