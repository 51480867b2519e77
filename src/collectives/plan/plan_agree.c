/* SPDX-License-Identifier: Apache-2.0
 *
 * The one agreement of a plan: every rank's outcome, a list of everything that
 * must be equal, and what may differ (strides, memory classes, places of arena
 * blocks).
 *
 * The list is of integers in a fixed order: the versions, the agreed fields of
 * plan_fields.c, then the values that this rank has computed or chosen for the
 * plan. All ranks compare all lists with rank 0's in that order, so all report
 * the same difference.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/exchange/mover.h"
#include "collectives/plan/plan_fields.h"
#include "topology/model/schedule.h"

enum { MAX_SETTLED = 16 + ULI_TERMS }; /* values beside the fields */

/* Begins a record; values[nvalues] follow. */
struct head {
    struct uli_rank_info info;
    int64_t nvalues;
};

/* "algo (0 direct, 1 pairwise, 2 hier)" */
static void
put_algo(struct uli_agreed *list, const ulyx_plan_t *plan)
{
    /* Room for each name with ", " (ULI_SCHEDULE_WORDS), and for its number of
     * at most two digits with a space. */
    char names[sizeof(ULI_SCHEDULE_WORDS) + 3 * ULI_ALGOS] = "";
    size_t length = 0;
    for (int algo = 0; algo < ULI_ALGOS && length < sizeof(names); algo++)
        length += (size_t)snprintf(names + length, sizeof(names) - length,
            "%s%d %s", algo ? ", " : "", algo, uli_algo_name(algo));
    uli_agreed_put(list, plan->algo, "algo (%s)", names);
    uli_agreed_put(list, plan->schedule_chunk_bytes, "the chunk of algo %s",
        uli_algo_name(plan->algo));
}

/* Lists the versions, the shape's fields by their table, and then the values
 * that this rank has computed or chosen. */
static void
fields_walk(struct uli_agreed *list, const ulyx_plan_t *plan)
{
    uli_agreed_put(list, ULI_PROTOCOL, "protocol version");
    uli_agreed_put(list, ULYX_VERSION_MAJOR * 10000 + ULYX_VERSION_MINOR * 100,
        "library version");
    uli_agreed_fields(list, &uli_shape_fields, uli_layout_shape(plan->layout),
        plan->comm->nranks);
    uli_agreed_put(list, (int64_t)plan->directions, "directions");
    for (int i = 0; i < ULI_TERMS; i++)
        uli_agreed_put(list, plan->terms[i], "%s", uli_term_names[i]);
    put_algo(list, plan);
    /* -1 stands for "no slots", whatever the caller gave for that. */
    uli_agreed_put(
        list, plan->slot_limit ? plan->slot_limit : -1, "slot_bytes");
    uli_agreed_put(list, (int64_t)uli_layout_table_hash(plan->layout),
        "the document tables' hash");
}

/* ---- the record ---------------------------------------------------------- */

/* Equal on all ranks, even if their plans differ. */
static int64_t
max_record_bytes(int32_t nranks)
{
    int64_t values = MAX_SETTLED + uli_agreed_most(&uli_shape_fields, nranks);
    return (int64_t)sizeof(struct head) + values * 8;
}

static int64_t
write_record(const ulyx_plan_t *plan, unsigned char *record)
{
    struct head head;
    int64_t *values = (int64_t *)(record + sizeof(head));
    struct uli_agreed list = {.values = values, .name_index = -1};
    memset(&head, 0, sizeof(head));
    fields_walk(&list, plan);
    head.info = plan->info;
    head.nvalues = list.count;
    memcpy(record, &head, sizeof(head));
    return (int64_t)sizeof(head) + list.count * 8;
}

/* ---- comparing ----------------------------------------------------------- */

static ulyx_status_t
plan_differ(const ulyx_plan_t *plan, int64_t index, int32_t p,
    const int64_t *zero, const int64_t *other)
{
    char name[64] = "the number of fields";
    struct uli_agreed list = {
        .name_index = index, .name_p = name, .name_bytes = sizeof(name)};
    fields_walk(&list, plan);
    return uli_agreed_differ(&list, "plan create", zero, other, p);
}

static ulyx_status_t
plan_compare(const ulyx_plan_t *plan, const unsigned char *all, int64_t stride)
{
    struct head zero, other;
    memcpy(&zero, all, sizeof(zero));
    const int64_t *first = (const int64_t *)(all + sizeof(zero));
    for (int64_t i = 0; i < zero.nvalues; i++)
        for (int32_t p = 1; p < plan->comm->nranks; p++) {
            const unsigned char *record = all + p * stride;
            const int64_t *values = (const int64_t *)(record + sizeof(other));
            memcpy(&other, record, sizeof(other));
            if (i >= other.nvalues)
                return plan_differ(
                    plan, INT64_MAX, p, &zero.nvalues, &other.nvalues);
            if (values[i] != first[i])
                return plan_differ(plan, i, p, first + i, values + i);
        }
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_outcomes(ulyx_comm_t *comm, const ulyx_status_t *statuses)
{
    char reason[ULI_REFUSAL_TEXT_BYTES];
    for (int32_t p = 0; p < comm->nranks; p++) {
        ulyx_status_t status = statuses[p];
        if (status == ULYX_SUCCESS)
            continue;
        return uli_error(uli_status_of_peer(status),
            "plan create: rank %d refused: %s", p,
            uli_agree_reason(comm, p, reason));
    }
    return ULYX_SUCCESS;
}

/* FNV-1a of all values that are compared: identifies the plan in the flight
 * recorder. Never 0. */
static uint64_t
plan_fingerprint(const unsigned char *record)
{
    struct head head;
    uint64_t hash = UINT64_C(14695981039346656037);
    memcpy(&head, record, sizeof(head));
    for (int64_t i = 0; i < head.nvalues * 8; i++)
        hash = (hash ^ record[(int64_t)sizeof(head) + i]) *
               UINT64_C(1099511628211);
    return hash | 1;
}

static void
take_records(ulyx_plan_t *plan, const unsigned char *all, int64_t stride)
{
    int32_t nranks = plan->comm->nranks;
    plan->exchange.fingerprint = plan_fingerprint(all);
    for (int32_t p = 0; p < nranks; p++) {
        struct head head;
        memcpy(&head, all + p * stride, sizeof(head));
        plan->ranks[p] = head.info;
    }
}

/* ---- the round ----------------------------------------------------------- */

ulyx_status_t
uli_plan_agree(ulyx_comm_t *comm, ulyx_plan_t *plan, ulyx_status_t outcome,
    uli_deadline_t deadline)
{
    int64_t stride = max_record_bytes(comm->nranks);
    size_t nranks = (size_t)comm->nranks;
    if (outcome != ULYX_SUCCESS)
        return uli_agree_refuse(comm, ULI_CALL_PLAN_CREATE, outcome, deadline);
    unsigned char *mine = calloc(1, (size_t)stride);
    unsigned char *all = calloc(nranks, (size_t)stride);
    int64_t *bytes = calloc(nranks, sizeof(*bytes));
    ulyx_status_t *statuses = calloc(nranks, sizeof(*statuses));
    ulyx_status_t status;
    if (!mine || !all || !bytes || !statuses) {
        status = uli_error(ULYX_ERR_NO_MEMORY,
            "no memory to compare plans (%lld bytes per rank)",
            (long long)stride);
        status = uli_agree_refuse(comm, ULI_CALL_PLAN_CREATE, status, deadline);
        goto out;
    }
    status = uli_agree_gather(
        comm, &(struct uli_gather){.call = ULI_CALL_PLAN_CREATE,
                  .mine = mine,
                  .bytes = write_record(plan, mine),
                  .max_bytes = stride,
                  .all_p = all,
                  .bytes_p = bytes,
                  .status_p = statuses,
                  .deadline = deadline});
    if (status == ULYX_SUCCESS)
        status = check_outcomes(comm, statuses);
    if (status == ULYX_SUCCESS)
        status = plan_compare(plan, all, stride);
    if (status == ULYX_SUCCESS)
        take_records(plan, all, stride);
out:
    free(mine);
    free(all);
    free(bytes);
    free(statuses);
    return status;
}
