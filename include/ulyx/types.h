/* SPDX-License-Identifier: Apache-2.0
 *
 * Types that every part of ulyx shares: version, status codes, data types.
 *
 * Conventions of the whole API: objects are opaque, and the caller holds
 * pointers to them. A call returns a status. Outputs come last, have names that
 * end in _p, and are written only on success. Sizes, counts, strides and
 * indices are signed 64-bit; strides are in bytes. A parameter struct begins
 * with its own size and is initialised with its ..._INIT macro. In all other
 * fields zero means the default, except in the ordinal of a device, where zero
 * is the first device.
 *
 * Versions: fields are only ever added at the end of a struct. A program built
 * against an older header passes a smaller size; the fields that its struct
 * lacks have the values of the INIT macro. A program built against a newer
 * header passes a larger size; the call is accepted if all fields that this
 * library does not have are zero, and otherwise fails with ERR_UNSUPPORTED,
 * whose text names the struct. For an array of structs, the size of one element
 * is given beside the array and has the same meaning.
 */
#ifndef ULYX_TYPES_H
#define ULYX_TYPES_H

#include <stddef.h>
#include <stdint.h>

#include "ulyx/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Everything a shared build exports, and nothing else. */
#if defined(__GNUC__)
#define ULYX_API __attribute__((visibility("default")))
#else
#define ULYX_API
#endif

/* X(name, value, text). The comment above a row explains when the status
 * occurs, or what the caller can do about it. */
#define ULYX_STATUS_MAP(X)                                                     \
    X(SUCCESS, 0, "success")                                                   \
    /* not finished yet: test again or wait */                                 \
    X(IN_PROGRESS, 1, "operation in progress")                                 \
    /* correct the call: nothing was done, outputs are untouched */            \
    X(ERR_INVALID_ARGUMENT, -1, "invalid argument")                            \
    /* the feature or combination named in the text does not exist */          \
    X(ERR_UNSUPPORTED, -2, "not supported")                                    \
    X(ERR_NO_MEMORY, -3, "out of memory")                                      \
    /* a product of the given sizes does not fit 64 bits */                    \
    X(ERR_OVERFLOW, -4, "size overflow")                                       \
    /* calls or parameters of ranks differ; comm.h says what remains usable */ \
    X(ERR_MISMATCH, -5, "ranks disagree")                                      \
    /* deadline passed; abort, shrink, agree, destroy and queries remain */    \
    X(ERR_TIMEOUT, -6, "timed out")                                            \
    /* a rank died; abort, shrink, agree, destroy and queries remain */        \
    X(ERR_RANK_LOST, -7, "rank lost")                                          \
    /* this communicator was aborted, here or by a peer */                     \
    X(ERR_ABORTED, -8, "communicator aborted")                                 \
    /* in use or in quarantine: finish or release first, then call again */    \
    X(ERR_BUSY, -9, "busy")                                                    \
    /* a peer refused its own call; communicator stays usable */               \
    X(ERR_PEER_REFUSED, -10, "refused by a peer")                              \
    /* a system call failed; the text has its error */                         \
    X(ERR_SYSTEM, -11, "system error")                                         \
    /* wrong secret or wrong user at the other end */                          \
    X(ERR_AUTH, -12, "authentication failed")                                  \
    /* the other end runs another protocol version of ulyx */                  \
    X(ERR_VERSION, -13, "version mismatch")                                    \
    /* forked while a communicator existed: only the parent may call */        \
    X(ERR_FORKED, -14, "called in a forked child")                             \
    /* a defect of ulyx: please report */                                      \
    X(ERR_INTERNAL, -15, "internal error")

typedef int32_t ulyx_status_t;
enum {
#define ULYX_STATUS_ENUM(name, value, text) ULYX_##name = value,
    ULYX_STATUS_MAP(ULYX_STATUS_ENUM)
#undef ULYX_STATUS_ENUM
};

/* Element types. BYTES stands for elements of any size, which can be moved but
 * not computed with; a tensor of BYTES has its element size in a field of its
 * own. The two fp8 types can be moved too, but there are no sums and no
 * attention of them yet. */
typedef int32_t ulyx_dtype_t;
enum {
    ULYX_DTYPE_BYTES = 0,
    ULYX_DTYPE_F64 = 1,
    ULYX_DTYPE_F32 = 2,
    ULYX_DTYPE_BF16 = 3,
    ULYX_DTYPE_F16 = 4,
    ULYX_DTYPE_F8_E4M3 = 5,
    ULYX_DTYPE_F8_E5M2 = 6,
};

typedef int32_t ulyx_memory_kind_t;
enum {
    ULYX_MEMORY_HOST = 0,
    ULYX_MEMORY_CUDA = 1,
};

/* The mask of attention. Plans that balance the cost of attention
 * (ULYX_WORK_BALANCED) take a mask too.
 * off = (len_k - len_q for BOTTOM_RIGHT, 0 for TOP_LEFT) + diagonal, per
 * document. Row i sees key j iff j <= i + off (CAUSAL), or i + off - left <= j
 * <= i + off + right (WINDOW). */
typedef int32_t ulyx_mask_kind_t;
enum {
    ULYX_MASK_NONE = 0,
    ULYX_MASK_CAUSAL = 1,
    ULYX_MASK_WINDOW = 2,
};
typedef int32_t ulyx_mask_align_t;
enum {
    ULYX_ALIGN_BOTTOM_RIGHT = 0,
    ULYX_ALIGN_TOP_LEFT = 1,
};
/* As the left or right end of a window: no limit on that side. */
#define ULYX_UNBOUNDED INT64_MAX

/* The documents of a token axis, as row numbers in the flattened [batch * S]
 * rows; a document may not cross a batch item. The table has one of two forms.
 * With length = NULL, begin has count + 1 entries, the cumulative lengths
 * (cu_seqlens). Otherwise begin and length give each document; the documents
 * are ascending and disjoint, and rows between them belong to no document. The
 * caller owns the arrays; the library reads them during the call only. */
typedef struct {
    size_t size;         /* sizeof(ulyx_docs_t), set by the macro */
    int64_t count;       /* number of documents, >= 0 */
    int32_t index_bytes; /* 4 (int32_t) or 8 (int64_t); default 8 */
    const void *begin;   /* [count], or [count + 1] when length is NULL */
    const void *length;  /* [count] or NULL */
} ulyx_docs_t;
#define ULYX_DOCS_INIT                                                         \
    {                                                                          \
        sizeof(ulyx_docs_t), 0, 8, 0, 0                                        \
    }

/* A run of rows of one head on a PACKED head side. Element (row, c) lies at
 * base + offset + (row - row_begin) * row_stride + c * element size. */
typedef struct {
    int64_t head;      /* global head: query head, or KV head of a HEADS_KV
                        * tensor */
    int64_t batch;     /* batch item */
    int64_t row_begin; /* rows of the axis; row_end is excluded */
    int64_t row_end;
    int64_t offset; /* bytes from the tensor's base */
} ulyx_segment_t;

typedef struct ulyx_comm ulyx_comm_t;
typedef struct ulyx_mem ulyx_mem_t;
typedef struct ulyx_plan ulyx_plan_t;
typedef struct ulyx_request ulyx_request_t;

/* The library's version, which may be newer than the header's.
 * returns: SUCCESS, or ERR_INVALID_ARGUMENT if a pointer is NULL. */
ULYX_API ulyx_status_t ulyx_get_version(
    int32_t *major_p, int32_t *minor_p, int32_t *patch_p);

/* The size in bytes of a public struct in this library, by the name of its type
 * ("ulyx_part_t"). Bindings that declare the structs in another language
 * compare their sizes with it.
 * returns: SUCCESS; ERR_INVALID_ARGUMENT (a pointer is NULL, or no public
 * struct has that name). */
ULYX_API ulyx_status_t ulyx_get_struct_size(const char *name, size_t *bytes_p);

/* The name ("ULYX_ERR_TIMEOUT") and the text ("timed out") of a status.
 * returns: a static string, also for unknown values. Never NULL. */
ULYX_API const char *ulyx_status_name(ulyx_status_t status);
ULYX_API const char *ulyx_status_text(ulyx_status_t status);

/* The exact cause of the calling thread's last failure ("rank 3: heads is 7,
 * rank 0 has 8"); empty before the first failure. Owned by the library, valid
 * until the thread's next failing call. Never NULL. */
ULYX_API const char *ulyx_last_error(void);

/* Log lines. Without ulyx_log_set they go to standard error or the file of
 * ULYX_DEBUG_FILE. A failed call is logged at level INFO only, because its
 * caller has the text. */
typedef int32_t ulyx_log_level_t;
enum {
    ULYX_LOG_DEFAULT = 0, /* the level of ULYX_DEBUG */
    ULYX_LOG_VERSION = 1, /* one line per process */
    ULYX_LOG_WARN = 2,    /* what no status reports: a few per process */
    ULYX_LOG_INFO = 3,    /* a few per object */
    ULYX_LOG_TRACE = 4,   /* a few per operation */
};

/* The type of a log function. text has no host name and no line end; rank is -1
 * where the line is not about a rank. Any thread of the program or the library
 * may call the function, several threads at once, and with locks of the library
 * held. So the function must return soon and must not call the library. */
typedef void (*ulyx_log_fn)(
    void *context, ulyx_log_level_t level, int32_t rank, const char *text);

/* From now on log lines up to `level` go to the function `log` instead of the
 * file or standard error; ULYX_DEBUG_SUBSYS still selects the subsystems. With
 * log = NULL they go to the file or standard error again. After SUCCESS no
 * thread is in the previous log function. A log function must not call this.
 * returns: SUCCESS; INVALID_ARGUMENT (level is no ULYX_LOG code); TIMEOUT (a
 * thread has been in the previous function for 10 s; the new function is set
 * all the same). */
ULYX_API ulyx_status_t ulyx_log_set(
    ulyx_log_fn log, void *context, ulyx_log_level_t level);

/* Size in bytes of one element; 0 for BYTES and unknown codes. */
ULYX_API int64_t ulyx_dtype_size(ulyx_dtype_t dtype);

#ifdef __cplusplus
}
#endif
#endif
