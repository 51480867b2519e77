/* SPDX-License-Identifier: Apache-2.0
 *
 * The fan-out of machines with wide vectors, written once, after copy_wide.h in
 * the including file.
 *
 * The runs of a fan are numbered in the order in which they lie in the source:
 * those of row 0 for all targets, then those of row 1, ... Each lane copies a
 * unit of consecutive runs, a page at most, and the lanes of a step copy
 * consecutive units. So the lanes read as many pages of the source side by
 * side, and each page once, whatever the length of a run.
 */
#ifndef ULI_COLLECTIVES_KERNELS_COPY_WIDE_FAN_H
#define ULI_COLLECTIVES_KERNELS_COPY_WIDE_FAN_H

enum { FAN_UNIT_BYTES = 4096 };

/* A run of a fan; as a step, the difference of two runs' numbers. */
struct fan_run {
    int64_t row;
    int32_t target;
};

/* The runs that the lanes copy next. */
struct fan_walk {
    int64_t left;             /* runs of each lane, including this one */
    int64_t in_unit;          /* runs of the unit before this one */
    int64_t unit;             /* runs of a unit */
    struct fan_run next_unit; /* from the last run of a unit to the first run of
                               * the lane's next one */
    struct fan_run lanes[ULI_LANES_MAX];
};

static inline void
fan_run_add(struct fan_run *run, struct fan_run step, int32_t targets)
{
    run->row += step.row;
    run->target += step.target;
    if (run->target >= targets) {
        run->target -= targets;
        run->row++;
    }
}

static inline struct fan_run
fan_run_number(int64_t number, int32_t targets)
{
    return (struct fan_run){number / targets, (int32_t)(number % targets)};
}

static inline __attribute__((always_inline)) struct fan_walk
fan_walk_begin(const struct uli_copy_fan *fan, int lanes)
{
    struct fan_walk walk = {.unit = 1};
    if (fan->run_bytes < FAN_UNIT_BYTES)
        walk.unit = FAN_UNIT_BYTES / fan->run_bytes;
    walk.left = fan->rows * fan->ntargets / (lanes * walk.unit) * walk.unit;
    walk.next_unit = fan_run_number((lanes - 1) * walk.unit + 1, fan->ntargets);
    for (int lane = 0; lane < lanes; lane++)
        walk.lanes[lane] = fan_run_number(lane * walk.unit, fan->ntargets);
    return walk;
}

static inline __attribute__((always_inline)) void
fan_walk_next(struct fan_walk *walk, int32_t targets, int lanes)
{
    const struct fan_run one = {0, 1};
    bool over = ++walk->in_unit == walk->unit;
    for (int lane = 0; lane < lanes; lane++)
        fan_run_add(&walk->lanes[lane], over ? walk->next_unit : one, targets);
    walk->in_unit = over ? 0 : walk->in_unit;
    walk->left--;
}

static inline const unsigned char *
fan_src(const struct uli_copy_fan *fan, struct fan_run run)
{
    return fan->src + fan->targets[run.target].src_offset +
           run.row * fan->src_stride;
}

static inline unsigned char *
fan_dst(const struct uli_copy_fan *fan, struct fan_run run)
{
    const struct uli_copy_target *target = &fan->targets[run.target];
    return target->dst + run.row * target->dst_stride;
}

/* Where the lanes prefetch: byte `at` of the runs of a walk that is ahead. */
struct fan_ahead {
    struct fan_walk walk;
    int64_t at;
    const unsigned char *src[ULI_LANES_MAX];
};

static inline __attribute__((always_inline)) void
fan_ahead_aim(
    struct fan_ahead *ahead, const struct uli_copy_fan *fan, int lanes)
{
    ahead->at = 0;
    for (int lane = 0; ahead->walk.left && lane < lanes; lane++)
        ahead->src[lane] = fan_src(fan, ahead->walk.lanes[lane]);
}

static inline __attribute__((always_inline)) void
fan_prefetch(struct fan_ahead *ahead, const struct uli_copy_fan *fan,
    const struct body body)
{
    if (body.hint == ULI_HINT_NONE || ahead->walk.left == 0)
        return;
    for (int lane = 0; lane < body.lanes; lane++)
        prefetch_line(ahead->src[lane] + ahead->at, body.hint);
    ahead->at += LINE_BYTES;
    if (ahead->at == fan->run_bytes) {
        fan_walk_next(&ahead->walk, fan->ntargets, body.lanes);
        fan_ahead_aim(ahead, fan, body.lanes);
    }
}

/* Copies the runs of the lanes, line by line. */
static inline __attribute__((always_inline)) void
fan_copy_runs(const struct uli_copy_fan *fan, const struct fan_walk *walk,
    struct fan_ahead *ahead, const struct body body)
{
    unsigned char *dst[ULI_LANES_MAX];
    const unsigned char *src[ULI_LANES_MAX];
    for (int lane = 0; lane < body.lanes; lane++) {
        dst[lane] = fan_dst(fan, walk->lanes[lane]);
        src[lane] = fan_src(fan, walk->lanes[lane]);
    }
    for (int64_t i = 0; i < fan->run_bytes; i += LINE_BYTES) {
        line_t lines[ULI_LANES_MAX];
        fan_prefetch(ahead, fan, body);
        for (int lane = 0; lane < body.lanes; lane++)
            lines[lane] = line_load(src[lane] + i);
        for (int lane = 0; lane < body.lanes; lane++)
            put_line(dst[lane] + i, lines[lane], body.stream);
    }
}

static inline __attribute__((always_inline)) void
fan_copy(
    const struct uli_copy_fan *fan, int32_t ahead_lines, const struct body body)
{
    struct fan_walk walk = fan_walk_begin(fan, body.lanes);
    struct fan_ahead ahead = {.walk = walk};
    fan_ahead_aim(&ahead, fan, body.lanes);
    for (int line = 0; line < ahead_lines; line++)
        fan_prefetch(&ahead, fan, body);
    while (walk.left) {
        fan_copy_runs(fan, &walk, &ahead, body);
        fan_walk_next(&walk, fan->ntargets, body.lanes);
    }
    /* Lane 0 stands at the first run that no step has copied. */
    for (struct fan_run run = walk.lanes[0]; run.row < fan->rows;
         fan_run_add(&run, (struct fan_run){0, 1}, fan->ntargets))
        copy_run(
            fan_dst(fan, run), fan_src(fan, run), fan->run_bytes, body.stream);
}

/* ---- the bodies ---------------------------------------------------------- */

#define BODY(name, lanes, hint)                                                \
    static void fan_##name(const struct uli_copy_fan *fan, int32_t ahead)      \
    {                                                                          \
        fan_copy(fan, ahead, (struct body){lanes, hint, false});               \
    }                                                                          \
    static void fan_stream_##name(                                             \
        const struct uli_copy_fan *fan, int32_t ahead)                         \
    {                                                                          \
        fan_copy(fan, ahead, (struct body){lanes, hint, true});                \
    }
BODIES_MAP(BODY)
#undef BODY

typedef void (*fan_fn)(const struct uli_copy_fan *fan, int32_t ahead);

/* By lanes, hint, and whether it streams. */
#define BODY(name, lanes, hint) [lanes][hint] = {fan_##name, fan_stream_##name},
static const fan_fn fan_bodies[ULI_LANES_MAX + 1][ULI_HINTS][2] = {
    BODIES_MAP(BODY)};
#undef BODY

static void
wide_fan(const struct uli_copy_fan *fan, const struct uli_copy_way *way)
{
    fan_bodies[way->lanes][way->hint][way->stream](fan, way->ahead);
}

#endif
