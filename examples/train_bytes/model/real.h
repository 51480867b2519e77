/* SPDX-License-Identifier: Apache-2.0
 *
 * The element type of parameters and activations. Sources that include this
 * file are compiled twice, for float and (TRAIN_F64) for double. The names that
 * they define for other files contain the type, so that one program has both.
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
#define REAL_DTYPE   ULYX_DTYPE_F32
#define REAL_NAME(x) x##_f32
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
#define model_create       REAL_NAME(model_create)
#define model_destroy      REAL_NAME(model_destroy)
#define model_step         REAL_NAME(model_step)
#define norm_forward       REAL_NAME(norm_forward)
#define norm_backward      REAL_NAME(norm_backward)
#define optimizer_create   REAL_NAME(optimizer_create)
#define optimizer_destroy  REAL_NAME(optimizer_destroy)
#define optimizer_norm     REAL_NAME(optimizer_norm)
#define optimizer_step     REAL_NAME(optimizer_step)
#define rope_table         REAL_NAME(rope_table)
#define rope_rotate        REAL_NAME(rope_rotate)
#define swiglu_forward     REAL_NAME(swiglu_forward)
#define swiglu_backward    REAL_NAME(swiglu_backward)

#endif
