/* SPDX-License-Identifier: Apache-2.0
 *
 * How public structs of other versions of the library are read: one table, and
 * one rule for all structs.
 *
 * A struct begins with its own size, or is in an array for which the caller
 * gives the size of an element. The least size is that of the first release and
 * never changes. A caller's struct that is shorter than this version's is
 * older: missing fields have the values of the INIT macro. A longer struct is
 * newer, and is accepted if all bytes beyond this version's are zero. Structs
 * that the library fills in are cut, or padded with zeros, by the same rule.
 *
 * A field added to a public struct changes one word here: the name of the
 * struct's last field. The field comes last, and its value in the INIT macro
 * means "as before". Structs end without padding (fields come in whole words of
 * 8 bytes): older programs leave padding undefined, and a later version would
 * read a new field from it.
 */
#ifndef ULI_BASE_PARAMS_STRUCTS_H
#define ULI_BASE_PARAMS_STRUCTS_H

#include <stdbool.h>
#include <stddef.h>
#include "ulyx/attention.h"
#include "ulyx/comm.h"
#include "ulyx/memory.h"
#include "ulyx/dist_attention.h"
#include "ulyx/reshuffle.h"

/* The size of a struct whose last field is `last`. */
#define ULI_LEAST(type, last)                                                  \
    (offsetof(type, last) + sizeof(((type *)NULL)->last))

/* X(name, type, last field of the first release, last field now, the value that
 * the INIT macro gives). */
#define ULI_STRUCT_MAP(X)                                                      \
    X(DOCS, ulyx_docs_t, length, length, ULYX_DOCS_INIT)                       \
    X(SEGMENT, ulyx_segment_t, offset, offset, {0})                            \
    X(COMM_PARAMS, ulyx_comm_params_t, name, flags, ULYX_COMM_PARAMS_INIT)     \
    X(LAUNCH, ulyx_launch_t, launcher, launcher, ULYX_LAUNCH_INIT)             \
    X(MEM_PARAMS, ulyx_mem_params_t, flags, flags, ULYX_MEM_PARAMS_INIT)       \
    X(PART, ulyx_part_t, splits, row_capacity, ULYX_PART_INIT)                 \
    X(TENSOR, ulyx_tensor_t, partial_strides, partial_strides,                 \
        ULYX_TENSOR_INIT)                                                      \
    X(PLAN_PARAMS, ulyx_plan_params_t, timeout_s, timeout_s,                   \
        ULYX_PLAN_PARAMS_INIT)                                                 \
    X(TRAFFIC, ulyx_traffic_t, wire_counted, wire_counted, ULYX_TRAFFIC_INIT)  \
    X(PIECE, ulyx_attention_piece_t, flag_value, flag_value, {0})              \
    X(ATTENTION_TENSOR, ulyx_attention_tensor_t, piece_size, piece_size,       \
        ULYX_ATTENTION_TENSOR_INIT)                                            \
    X(ATTENTION, ulyx_attention_t, max_rows, max_rows, ULYX_ATTENTION_INIT)    \
    X(ATTENTION_EXEC, ulyx_attention_exec_t, cause, cause,                     \
        ULYX_ATTENTION_EXEC_INIT)                                              \
    X(ATTENTION_FORWARD, ulyx_attention_forward_t, max_logit, max_logit,       \
        ULYX_ATTENTION_FORWARD_INIT)                                           \
    X(ATTENTION_BACKWARD, ulyx_attention_backward_t, flags, flags,             \
        ULYX_ATTENTION_BACKWARD_INIT)                                          \
    X(DIST_ATTENTION_PARAMS, ulyx_dist_attention_params_t, timeout_s,          \
        timeout_s, ULYX_DIST_ATTENTION_PARAMS_INIT)                            \
    X(DIST_ATTENTION_FORWARD, ulyx_dist_attention_forward_t, timeout_s,        \
        out_strides, ULYX_DIST_ATTENTION_FORWARD_INIT)                         \
    X(DIST_ATTENTION_BACKWARD, ulyx_dist_attention_backward_t, timeout_s,      \
        dv_strides, ULYX_DIST_ATTENTION_BACKWARD_INIT)                         \
    X(SAVED_TENSOR, ulyx_saved_tensor_t, bytes, bytes, {0})                    \
    X(DIST_ATTENTION_TIMES, ulyx_dist_attention_times_t, received_bytes,       \
        received_bytes, ULYX_DIST_ATTENTION_TIMES_INIT)

enum uli_struct_id {
#define ULI_STRUCT_ID(name, type, first_last, last, init) ULI_STRUCT_##name,
    ULI_STRUCT_MAP(ULI_STRUCT_ID)
#undef ULI_STRUCT_ID
        ULI_STRUCTS
};

struct uli_struct {
    const char *name; /* "ulyx_docs_t" */
    size_t bytes;     /* in this version */
    size_t least_bytes;
    const void *defaults;
    const char *init; /* "ULYX_DOCS_INIT" */
};
extern const struct uli_struct uli_structs[ULI_STRUCTS];

/* The size of the largest struct that is used in arrays. */
enum { ULI_ELEMENT_BYTES = 160 };

/* Fills *own_p, a struct of this version's size, from the caller's struct.
 * name: for messages; NULL: the name of the type.
 * returns SUCCESS; ERR_INVALID_ARGUMENT (a size below the least, or far too
 * large); ERR_UNSUPPORTED (non-zero bytes beyond this version's size). */
ulyx_status_t uli_struct_take(const struct uli_struct *kind, const void *given,
    void *own_p, const char *name);
/* As above; fills in the defaults if given is NULL. */
ulyx_status_t uli_struct_take_or_default(
    const struct uli_struct *kind, const void *given, void *own_p);

/* Checks a caller's array, and that the bytes beyond this version's size are
 * zero in every element. name: of the array.
 * returns SUCCESS; ERR_INVALID_ARGUMENT (NULL with elements; a size of an
 * element that is below the least, no multiple of 8, or far too large);
 * ERR_UNSUPPORTED (non-zero bytes beyond this version's size). */
ulyx_status_t uli_struct_array(const struct uli_struct *kind, const void *array,
    size_t element_bytes, int64_t count, const char *name);
/* Copies an element of an array that uli_struct_array has checked. */
void uli_struct_element(const struct uli_struct *kind, const void *array,
    size_t element_bytes, int64_t index, void *own_p);

/* Fills a caller's struct, in which the caller has set the size; the size is
 * not changed.
 * returns SUCCESS; ERR_INVALID_ARGUMENT (as above; *given_p is untouched). */
ulyx_status_t uli_struct_give(
    const struct uli_struct *kind, const void *own, void *given_p);
/* uli_struct_element_size checks the element size of an array that the library
 * is to fill; uli_struct_give_element then fills an element.
 * returns SUCCESS; ERR_INVALID_ARGUMENT. */
ulyx_status_t uli_struct_element_size(
    const struct uli_struct *kind, size_t element_bytes, const char *name);
void uli_struct_give_element(const struct uli_struct *kind, const void *own,
    void *array, size_t element_bytes, int64_t index);

#endif
