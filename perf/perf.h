/* SPDX-License-Identifier: Apache-2.0
 *
 * ulyx_perf: sweeps the exchange as nccl-tests sweeps collectives.
 *
 * A run is a list of cases (a model's geometry and a direction), each swept
 * over S. A process has threads x ranks_per_thread ranks. A rank has one
 * communicator handle, and for each size plans, windows and comparators. Each
 * schedule at each size makes a row.
 */
#ifndef PERF_PERF_H
#define PERF_PERF_H

#include <stdbool.h>
#include <stdint.h>
#include "collectives/kernels/copy_choice.h"
#include "collectives/layout/layout.h"
#include "ulyx/ulyx.h"

/* The exit codes of nccl-tests, and two more. */
enum perf_exit {
    PERF_OK = 0,
    PERF_INTERNAL = 1,
    PERF_LIBRARY = 3,
    PERF_TIMEOUT = 4,
    PERF_NOT_IMPLEMENTED = 5,
    PERF_USAGE = 6,
    PERF_WRONG_DATA = 7,
    PERF_SKIPPED = 77, /* no device here */
    PERF_CLOSED = 141, /* nobody reads standard output: ends by SIGPIPE */
};

struct perf_model {
    const char *name;
    int64_t heads, kv_heads, dim_qk, dim_v;
    const char *note;
};
const struct perf_model *perf_models(int *count_p);
const struct perf_model *perf_model_find(const char *name);

enum perf_versus {
    PERF_VS_MEMCPY,
    PERF_VS_BEST,
    PERF_VS_FLAG,
    PERF_VS_MPI,
    PERF_VS_COPY, /* this and the following: on device memory */
    PERF_VS_PERMUTE,
    PERF_VS_NCCL,
    PERF_VERSUS
};

enum {
    PERF_DTYPES = 8,      /* most in one run */
    PERF_ALGOS = 5,       /* most schedules in one run */
    PERF_PERCENTILES = 8, /* most columns in one run */
};
struct perf_dtype {
    char name[16]; /* as printed */
    ulyx_dtype_t code;
    int64_t bytes;
};

struct perf_options {
    /* of nccl-tests */
    int64_t min_bytes, max_bytes, step_bytes;
    double step_factor;
    int iterations, warmups, aggregate, cycles, check, average;
    int replays; /* launches of a block's graph; 0 = no graph */
    int threads, ranks_per_thread, blocking, parallel_init;
    int per_iteration; /* each iteration is a block of its own */
    int unalign;       /* elements after a multiple of 64 bytes */
    double timeout_s;
    const char *json_file;
    bool register_memory; /* -R 0: ordinary memory */
    /* of ulyx_perf */
    int procs;
    int64_t batch, seq, heads, kv_heads, dim, dim_v, replicated;
    const char *dtype, *direction, *order, *work, *model, *versus, *memory;
    const char *algo, *percentiles, *tune;
    bool quick, csv, wide, dry_run, progress, copy_engine, nccl_format;
    /* The words above, resolved (options_check.c). */
    bool cuda;
    struct perf_dtype dtypes[PERF_DTYPES];
    int ndtypes;
    char algos[PERF_ALGOS][16]; /* "": the library chooses */
    int nalgos;
    double percents[PERF_PERCENTILES];
    int npercents;
    char notes[512];     /* lines for readers of the report */
    uint64_t given;      /* bit i: row i of the table was given */
    uint64_t directions; /* bit per direction, from `direction` */
    bool vs[PERF_VERSUS];
};

/* Fills the options. returns false where the program ends: with *exit_p 0 after
 * --help and the like; with 6 after an error, or 5 for an option of nccl-tests
 * that is not supported, and the reason on stderr. */
bool perf_options_parse(
    int argc, char **argv, struct perf_options *options, int *exit_p);
/* Prints on stderr how to get help, then the reason as the last line.
 * returns false. */
bool perf_reject(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One geometry, direction and type: what a row moves for a given S. */
struct perf_case {
    char name[64];
    int64_t heads, kv_heads, dim_qk, dim_v;
    ulyx_direction_t direction;
    struct perf_dtype dtype;
};

/* What all ranks share for one size: the shape as parameters of a plan, and as
 * the index maths takes it. */
struct perf_shape {
    int64_t seq;
    int32_t nranks;
    ulyx_part_t parts[2];
    ulyx_tensor_t tensors[6];
    ulyx_plan_params_t params; /* points into this struct */
    struct uli_shape internal;
    int64_t full_bytes; /* of all tensors, sequence side, all ranks */
    int sets; /* copies of the tensors that are used in turn: the same number on
               * all ranks, a multiple of the number of schedules */
};
void perf_shape_fill(const struct perf_options *options,
    const struct perf_case *one, int64_t seq, int32_t nranks,
    struct perf_shape *shape_p);
/* The largest S whose sequence-side bytes per rank do not exceed `bytes`; at
 * least one row per rank. */
int64_t perf_shape_seq(const struct perf_options *options,
    const struct perf_case *one, int64_t bytes, int32_t nranks);
/* The sequence-side bytes of the rank with the most tokens. */
int64_t perf_shape_bytes(const struct perf_options *options,
    const struct perf_case *one, int64_t seq, int32_t nranks);

/* What one rank sends another in an operation, as boxes of dense tensors. The
 * caller frees them. */
struct perf_boxes {
    struct uli_box *boxes;
    int32_t *tensors; /* by box: its tensor */
    int64_t count, bytes;
};
bool perf_boxes_make(const struct uli_layout *layout,
    ulyx_direction_t direction, int32_t dst_rank, int32_t src_rank,
    struct perf_boxes *boxes_p);
void perf_boxes_free(struct perf_boxes *boxes);

/* What a rank has for one size. The tensors of one side lie in one window, each
 * between guard bands. `sets` copies of the tensors are used in turn, so that
 * caches do not help. For device memory, base is a copy on the host, which is
 * filled and checked in place of the device's memory. */
enum {
    PERF_MAX_SETS = 16,
    PERF_TENSORS = 6,
    PERF_GUARD = 256,
    PERF_MAX_RANKS = 4096,
};
struct perf_side {
    ulyx_mem_t *mem;      /* NULL: no window */
    unsigned char *base;  /* on the host */
    unsigned char *where; /* where operations use the side */
    int64_t bytes, set_bytes;
    int64_t offset[PERF_TENSORS], extent[PERF_TENSORS]; /* within a set */
};
struct perf_rank {
    int32_t rank, nranks;
    ulyx_comm_t *comm;
    ulyx_plan_t *plans[PERF_ALGOS]; /* one per schedule compared */
    int nplans;
    ulyx_plan_t *plan; /* the plan in use, plans[algo] */
    int algo;
    struct uli_layout *layout;
    const struct perf_shape *shape;
    ulyx_direction_t direction;
    struct perf_side src, dst, back; /* back: result of a round trip, as src */
    int sets, turn;                  /* turn: the set in use */
    int next[PERF_ALGOS]; /* set of the schedule's next operation: schedule a of
                           * n uses the sets a, a + n, ..., so that its results
                           * can be checked separately */
    struct perf_boxes *to; /* [nranks] what this rank sends to each */
    void *mpi;             /* state of the comparator */
    unsigned char *arrays; /* of perf_run_stream */
    int64_t array_at;      /* where perf_run_stream goes on in the arrays */
    ulyx_mem_t *flag_mem;  /* of perf_run_flag */
    unsigned char *flags;  /* [nranks] lines, a flag from each rank */
    _Atomic uint64_t **flag_of; /* [nranks] this rank's flag at each */
    uint64_t round; /* operations whose flags this rank has posted */
    int32_t device; /* ordinal of the device, on device memory */
    void *stream, *timers[2], *graph;
    struct perf_peers *peers; /* comparators on device memory */
};
/* True on success; else prints the error on stderr. */
bool perf_status_ok(const char *what, ulyx_status_t status);
bool perf_rank_open(struct perf_rank *rank, const struct perf_options *options);
/* Selects the plan of the schedule for the calls that follow. */
void perf_rank_use(struct perf_rank *ranks, int count_ranks, int algo);
void perf_rank_close(struct perf_rank *rank);
/* pointers_p[ntensors]: the tensors of a set of the side. */
void perf_rank_pointers(const struct perf_rank *rank,
    const struct perf_side *side, int set, void **pointers_p);

/* Fills all sets of src with the pattern of pattern.c, and all other bytes with
 * 0xff. */
bool perf_fill(struct perf_rank *rank);
/* Number of wrong elements, and of overwritten bytes between tensors, in the
 * destination sets of the schedule in use. */
int64_t perf_check(struct perf_rank *rank);
/* Both add to *wrong_p the wrong elements of this thread's ranks for the
 * schedule in use. perf_verify_timed checks the destinations that the timed
 * operations have left. perf_verify_anew makes and checks `passes` new passes,
 * which overwrite the destinations of all schedules. Collective; false when an
 * operation failed. */
bool perf_verify_timed(
    struct perf_rank *ranks, int count_ranks, int64_t *wrong_p);
bool perf_verify_anew(
    struct perf_rank *ranks, int count_ranks, int passes, int64_t *wrong_p);

/* Results of one row, equal on all ranks. Times are seconds per operation. */
struct perf_stat {
    double shown; /* the one that algbw, busbw and tables use */
    double mean, minimum, maximum, median, p99, cv;
    double percentiles[PERF_PERCENTILES]; /* of options->percents */
};
/* Both sort the values, of which there is at least one. */
double perf_median(double *values, int n);
struct perf_stat perf_statistics(
    double *values, int n, const struct perf_options *options);
struct perf_row {
    const struct perf_case *one;
    int64_t seq, size_bytes, bus_bytes, count;
    char schedule[16], transport[32], verb[48]; /* rank 0's (view_plan.c) */
    struct perf_stat time;
    double algbw, busbw; /* GB/s, 10^9 */
    int64_t wrong;       /* -1 = unchecked */
    bool has[PERF_VERSUS];
    double ratio[PERF_VERSUS]; /* comparator's time / ulyx's time */
    double ratio_stream;       /* perf_run_stream */
    double ratio_typed;        /* MPI_Alltoallw */
    double ratio_each;         /* nccl, one tensor at a time */
    char describe[1024];
};

/* One timed block: `count` back-to-back operations by all ranks of this
 * thread. */
bool perf_run_ulyx(struct perf_rank *ranks, int count_ranks, int count);
/* One timed block of a comparator, in one of its variants. */
typedef bool (*perf_comparator_fn)(
    struct perf_rank *ranks, int count_ranks, int count, int variant);
/* How contiguous memory is copied. */
enum perf_copy {
    PERF_COPY_LIBC,        /* memcpy */
    PERF_COPY_STREAMED,    /* line after line, streaming stores */
    PERF_COPY_LANES,       /* several pages side by side, streaming stores */
    PERF_COPY_LANES_ONCE,  /* so, with another hint of prefetches */
    PERF_COPY_LANES_PLAIN, /* several pages side by side, ordinary stores */
    PERF_COPIES
};
bool perf_run_memcpy(
    struct perf_rank *ranks, int count_ranks, int count, int copy);
/* Copies as many bytes as perf_run_memcpy, but from one array of 32 MiB of the
 * rank to another: the memory bandwidth that the ranks reach together. */
bool perf_run_stream(
    struct perf_rank *ranks, int count_ranks, int count, int copy);
bool perf_stream_open(struct perf_rank *rank);
void perf_stream_close(struct perf_rank *rank);
/* Makes the copies of perf_run_memcpy, and ends each operation with a flag from
 * every rank to every rank. Ranks must be able to map each other's memory. */
bool perf_run_flag(
    struct perf_rank *ranks, int count_ranks, int count, int copy);
bool perf_flag_open(struct perf_rank *rank);
void perf_flag_close(struct perf_rank *rank);
bool perf_mpi_available(void);
bool perf_mpi_open(struct perf_rank *rank);
void perf_mpi_close(struct perf_rank *rank);
/* For one rank per process. typed: MPI_Alltoallw of derived datatypes, else
 * pack, MPI_Alltoall or MPI_Alltoallv, unpack. */
bool perf_run_mpi(
    struct perf_rank *rank, int count_ranks, int count, int typed);

/* Device memory (device.c), on the device that is current in the process.
 * perf_devices_open returns PERF_OK, or PERF_SKIPPED or another exit code after
 * printing the reason. */
int perf_devices_open(const struct perf_options *options);
bool perf_device_open(struct perf_rank *rank);
void perf_device_close(struct perf_rank *rank);
bool perf_device_alloc(struct perf_rank *rank, struct perf_side *side);
void perf_device_free(struct perf_rank *rank, struct perf_side *side);
/* Copy the whole side to the device, or back; no effect on host memory. */
bool perf_side_up(struct perf_rank *rank, struct perf_side *side);
bool perf_side_down(struct perf_rank *rank, struct perf_side *side);
/* Waits until everything enqueued has ended; no effect on host memory. */
bool perf_device_wait(struct perf_rank *ranks, int count_ranks);
/* Put events on each rank's stream, before and after the work to time. stop
 * waits for the second event. seconds_p: time between the events, by rank. */
bool perf_device_start(struct perf_rank *ranks, int count_ranks);
bool perf_device_stop(
    struct perf_rank *ranks, int count_ranks, double *seconds_p);
/* The operations between begin and end become a graph of each rank. replay
 * launches the graphs `times` times. drop, or perf_device_close, frees them. */
bool perf_graph_begin(struct perf_rank *ranks, int count_ranks);
bool perf_graph_end(struct perf_rank *ranks, int count_ranks);
bool perf_graph_replay(struct perf_rank *ranks, int count_ranks, int times);
bool perf_graph_drop(struct perf_rank *ranks, int count_ranks);

/* Comparators on device memory (versus_device.c). perf_peers_open is collective
 * where options->vs has PERF_VS_NCCL. */
bool perf_peers_open(struct perf_rank *ranks, int count_ranks,
    const struct perf_options *options);
void perf_peers_close(struct perf_rank *rank);
bool perf_run_copy(
    struct perf_rank *ranks, int count_ranks, int count, int variant);
bool perf_run_permute(
    struct perf_rank *ranks, int count_ranks, int count, int variant);
/* each: one tensor at a time, as frameworks do; else all in one plan. */
bool perf_run_nccl(
    struct perf_rank *ranks, int count_ranks, int count, int each);
/* Executes a plan of the rank on its tensors from index `tensor` on. */
ulyx_status_t perf_execute(
    struct perf_rank *rank, ulyx_plan_t *plan, int32_t tensor);

/* Measures one shape on this thread's ranks: fills a row per schedule,
 * rows_p[ranks[0].nplans], on every rank. */
int perf_measure(struct perf_rank *ranks, int count_ranks,
    const struct perf_options *options, struct perf_row *rows_p);

/* Fills the row's texts about the plan in use (view_plan.c). */
bool perf_row_describe(const struct perf_rank *rank, struct perf_row *row);

/* Collective helpers on a thread's ranks (gather.c). */
bool perf_barrier(struct perf_rank *ranks, int count_ranks);
/* Gathers records of `bytes` each: mine has one per rank of this thread;
 * all_p[nranks] receives the records of all ranks. */
bool perf_gather(struct perf_rank *ranks, int count_ranks, const void *mine,
    size_t bytes, void *all_p);

/* Where a rank runs, and the memory that its node had available at the
 * start. */
struct perf_place {
    int64_t pid, thread, memory_bytes;
    int32_t node, nodes; /* the rank's, and their number */
    int32_t cores;       /* that the process may use */
    char host[64], cpu[64];
};
void perf_place_fill(
    const struct perf_rank *rank, int64_t thread, struct perf_place *place_p);

/* The report, which only the process of rank 0 writes. perf_report_open returns
 * NULL after printing the reason on stderr. perf_report_begin prints the
 * header; places[nranks]. */
struct perf_report;
struct perf_report *perf_report_open(
    const struct perf_options *options, int32_t nranks, int argc, char **argv);
void perf_report_begin(
    struct perf_report *report, const struct perf_place *places);
void perf_report_row(struct perf_report *report, const struct perf_row *row);
void perf_report_progress(struct perf_report *report, int done, int of);
/* Prints a line for readers: as a comment in the table; with CSV, on stderr. */
void perf_report_note(struct perf_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Writes the footer and the JSON; false when the file could not be written. */
bool perf_report_close(struct perf_report *report);
double perf_report_average(const struct perf_report *report);
int64_t perf_report_wrong(const struct perf_report *report);

/* Starts options->procs local copies of this program and returns their worst
 * exit code; for --vs mpi, becomes mpirun with the MPI build. */
int perf_launch(const struct perf_options *options, int argc, char **argv);
bool perf_launch_needed(
    const struct perf_options *options, const ulyx_launch_t *launch);
/* Finds out how a launcher (mpirun, srun, torchrun, this program) has started
 * this process; false: the launcher's variables are refused, and the reason is
 * on stderr. */
bool perf_launch_query(ulyx_launch_t *launch_p);
/* Becomes the MPI build of this program; returns only on failure, with an exit
 * code. */
int perf_launch_mpi_here(char **argv);

#endif
