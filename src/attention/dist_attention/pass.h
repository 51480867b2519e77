/* SPDX-License-Identifier: Apache-2.0
 *
 * One call of a distributed attention in progress.
 *
 * Every rank goes through the same plans in the same order, whatever happens:
 * after its first error a rank refuses the rest of the plans. So the call
 * counts of all plans are equal on all ranks, no rank waits for a rank that has
 * left, and the communicator stays usable.
 */
#ifndef ULI_ATTENTION_DIST_ATTENTION_PASS_H
#define ULI_ATTENTION_DIST_ATTENTION_PASS_H

#include "attention/dist_attention/dist_attention.h"

/* A plan set in flight. */
struct uli_transfer {
    ulyx_request_t *requests[ULI_PLAN_SET_PLANS];
    int32_t nrequests;
    int64_t started_ns;
};

/* The transfers that may be in flight at a time, per slot: to the head side,
 * and back. */
enum uli_transfer_kind {
    ULI_TRANSFER_INPUTS, /* q, k, v */
    ULI_TRANSFER_GRAD,   /* dout, delta */
    ULI_TRANSFER_BACK,   /* out; dq, dk, dv; dq alone of a piece */
    ULI_TRANSFER_SUMS,   /* dk, dv of a cut KV head; its slot is kv_slot */
    ULI_TRANSFERS
};

/* Points of the two streams of a device. */
enum uli_mark {
    /* + slot: in the stream of the exchanges, when the slot's group is on the
     * head side; with slot 0 at the end of a pass, when all exchanges are
     * over */
    ULI_MARK_BROUGHT,
    /* in the stream of the attention, when a group is attended */
    ULI_MARK_ATTENDED = ULI_MARK_BROUGHT + ULI_DIST_SLOTS,
    ULI_MARKS
};

struct uli_pass {
    struct ulyx_dist_attention *dist;
    const struct uli_dist_call *call;
    const struct uli_pass_layout *layout;
    uli_deadline_t deadline;
    ulyx_status_t status; /* the first error */
    char text[256];
    /* the error of an earlier call, which the device has found since; this call
     * continues */
    ulyx_status_t earlier;
    char earlier_text[256];
    bool silent; /* a refusal is not sent: the call does not take place */
    void *exchange_stream; /* of plans and delta; on host memory NULL */
    struct uli_transfer transfers[ULI_TRANSFERS][ULI_DIST_SLOTS];
    int64_t attention_ns, exchange_ns, exposed_ns, scores;
};

/* Pointers of a plan set's tensors on one side, in its order. */
struct uli_pointers {
    void *at[3 * ULI_AXIS_PARTS];
    int32_t count;
    bool strided; /* any has other strides than at creation */
    int64_t strides[3 * ULI_AXIS_PARTS][3]; /* of the sequence side's */
};

/* Adds a tensor of the call, seen from the group's first head, for each part
 * of the axis of queries (axis 0) or of keys (axis 1). */
void uli_pass_seq(const struct uli_pass *pass,
    const struct uli_head_group *group, enum uli_dist_tensor tensor,
    int32_t axis, struct uli_pointers *list);
/* Adds delta on the sequence side, of query part i. */
void uli_pass_add_seq_delta(const struct uli_pass *pass,
    const struct uli_head_group *group, int32_t slot, int32_t i,
    struct uli_pointers *list);
/* delta on the sequence side, of query part i. */
void *uli_pass_seq_delta(const struct uli_pass *pass,
    const struct uli_head_group *group, int32_t slot, int32_t i);
/* The place of a head-side tensor: in saved, or in the slot of the
 * workspace. */
void *uli_pass_head(const struct uli_pass *pass,
    const struct uli_head_group *group, int32_t slot,
    enum uli_head_tensor tensor);
/* Adds the head-side tensor once per part of the axis. */
void uli_pass_add_head(const struct uli_pass *pass,
    const struct uli_head_group *group, int32_t slot,
    enum uli_head_tensor tensor, int32_t axis, struct uli_pointers *list);
/* The head-side tensor as the attention takes it. */
ulyx_attention_tensor_t uli_pass_view(const struct uli_pass *pass,
    const struct uli_head_group *group, int32_t slot,
    enum uli_head_tensor tensor);

/* Note an error with the thread's last error text, unless one is noted already:
 * an error of this call, and an error of an earlier call. */
void uli_pass_fail(struct uli_pass *pass, ulyx_status_t status);
void uli_pass_earlier(struct uli_pass *pass, ulyx_status_t status);
/* Starts the plan set's plans, or refuses them after an error. */
void uli_pass_start(struct uli_pass *pass, struct uli_plan_set *plan_set,
    ulyx_direction_t direction, const struct uli_pointers *src,
    const struct uli_pointers *dst, struct uli_transfer *transfer_p);
/* Waits for the transfer that is in flight there, if there is one. */
void uli_pass_wait(struct uli_pass *pass, struct uli_transfer *transfer);
/* Runs a translated attention call in the workspace. */
void uli_pass_attend(struct uli_pass *pass, struct uli_attn_call *attention,
    ulyx_attention_pass_t kind);

/* ---- the pipeline of head groups (pipeline.c) ------------------- */

/* What a pass does with group g. */
struct uli_steps {
    void (*bring)(struct uli_pass *pass, int32_t g); /* starts towards heads */
    void (*attend)(struct uli_pass *pass, int32_t g);
    void (*send)(struct uli_pass *pass, int32_t g); /* starts the results' way
                                                     * back */
};
void uli_pass_groups(struct uli_pass *pass, const struct uli_steps *steps);
/* Starts q, k, v of a group towards the head side. */
void uli_pass_bring_inputs(struct uli_pass *pass, int32_t g);

/* Checks that outputs share no byte with anything else that the call uses. It
 * uses the strides, so tensors may be interleaved. returns SUCCESS;
 * INVALID_ARGUMENT naming both. (dist_overlap.c) */
ulyx_status_t uli_dist_check_overlap(
    const struct ulyx_dist_attention *dist, const struct uli_dist_call *call);

/* The two passes (forward.c, backward.c). */
void uli_dist_forward(struct uli_pass *pass);
void uli_dist_backward(struct uli_pass *pass);

#endif
