/* SPDX-License-Identifier: Apache-2.0
 *
 * The element type of parameters and activations, and the memory that they are
 * in. Sources that include this header are compiled for float, with TRAIN_F64
 * for double, and with TRAIN_CUDA for float in device memory. The names that
 * they define for other files get a suffix for the kind, so that one program
 * can contain all kinds. Functions that read or write elements are declared in
 * parts.h and values.h; for a device, they have sources of their own.
 */
#ifndef EXAMPLES_TRAIN_BYTES_MODEL_REAL_H
#define EXAMPLES_TRAIN_BYTES_MODEL_REAL_H

#include <stdint.h>
#include <ulyx/ulyx.h>

#ifdef TRAIN_F64
typedef double real;
#define REAL_DTYPE   ULYX_DTYPE_F64
#define REAL_NAME(x) x##_f64
#else
typedef float real;
#define REAL_DTYPE ULYX_DTYPE_F32
#ifdef TRAIN_CUDA
#define REAL_NAME(x) x##_cuda
#else
#define REAL_NAME(x) x##_f32
#endif
#endif
#ifdef TRAIN_CUDA
#define REAL_MEMORY ULYX_MEMORY_CUDA
#else
#define REAL_MEMORY ULYX_MEMORY_HOST
#endif

#define attend_create      REAL_NAME(attend_create)
#define attend_destroy     REAL_NAME(attend_destroy)
#define attend_step        REAL_NAME(attend_step)
#define attend_take        REAL_NAME(attend_take)
#define attend_give_back   REAL_NAME(attend_give_back)
#define attend_forward     REAL_NAME(attend_forward)
#define attend_backward    REAL_NAME(attend_backward)
#define attend_plain_ops   REAL_NAME(attend_plain_ops)
#define attend_sharded_ops REAL_NAME(attend_sharded_ops)
#define head_step          REAL_NAME(head_step)
#define layer_forward      REAL_NAME(layer_forward)
#define layer_backward     REAL_NAME(layer_backward)
#define linear_output      REAL_NAME(linear_output)
#define linear_input       REAL_NAME(linear_input)
#define linear_weight      REAL_NAME(linear_weight)
#define model_create       REAL_NAME(model_create)
#define model_destroy      REAL_NAME(model_destroy)
#define model_step         REAL_NAME(model_step)
#define norm_forward       REAL_NAME(norm_forward)
#define norm_backward      REAL_NAME(norm_backward)
#define optimizer_create   REAL_NAME(optimizer_create)
#define optimizer_destroy  REAL_NAME(optimizer_destroy)
#define optimizer_norm     REAL_NAME(optimizer_norm)
#define optimizer_step     REAL_NAME(optimizer_step)
#define rows_give          REAL_NAME(rows_give)
#define rows_take          REAL_NAME(rows_take)
#define rope_table         REAL_NAME(rope_table)
#define rope_rotate        REAL_NAME(rope_rotate)
#define swiglu_forward     REAL_NAME(swiglu_forward)
#define swiglu_backward    REAL_NAME(swiglu_backward)
#define update_adamw       REAL_NAME(update_adamw)
#define update_norm        REAL_NAME(update_norm)
#define update_sgd         REAL_NAME(update_sgd)
#define values_alloc       REAL_NAME(values_alloc)
#define values_clear       REAL_NAME(values_clear)
#define values_close       REAL_NAME(values_close)
#define values_download    REAL_NAME(values_download)
#define values_free        REAL_NAME(values_free)
#define values_open        REAL_NAME(values_open)
#define values_stream      REAL_NAME(values_stream)
#define values_upload      REAL_NAME(values_upload)
#define values_wait        REAL_NAME(values_wait)
#define vectors_add        REAL_NAME(vectors_add)

#endif
