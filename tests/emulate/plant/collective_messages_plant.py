#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies the kernels of collectives by messages with faults planted into them,
each behind a number that a test sets at run time. A place that is not found, or
found twice, is an error, so the list keeps up with the source.

collective_messages_plant.py SOURCE-DIR OUTPUT-DIR
"""
import sys

import plant

KERNELS = "collectives/device/collective/collective_messages.cu"

# name, text before the place, the place, its replacement
FAULTS = [
    ("CALL_NOT_NAMED", "",
     "ptx_st_relaxed_sys_u64(&mark.report->call, mark.call);", ""),
    ("BEGIN_NOT_SHOWN", "",
     "ptx_st_release_sys_u64(&mark.report->begun, n);", ""),
    ("BEGIN_OF_THE_CALL_BEFORE", "uint64_t n = ",
     "mark.state->call + 1", "mark.state->call"),
    ("NUMBER_NOT_ADVANCED", "", "mark.state->call = n;", ""),
    ("END_NOT_SHOWN", "",
     "ptx_st_release_sys_u64(&mark.report->ended, n);", ""),
    ("OWN_SHARE_OF_A_MESSAGE", "return ", "p == sum.rank", "p == 0"),
    ("SHARES_IN_ANOTHER_ORDER", "load_elements(e, ",
     "share_of_rank(sum, p)", "share_of_rank(sum, sum.nranks - 1 - p)"),
    ("LAST_SHARE_LEFT_OUT", "int32_t p = 0; ", "p < sum.nranks",
     "p < sum.nranks - 1"),
    ("FIRST_SHARE_ADDED_TO_ZERO", "total[i] = ", "p == 0", "false"),
    ("BLOCKS_BEGIN_ALIKE", "int64_t n = ",
     "(int64_t)blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x"),
    ("STEP_OF_ONE_BLOCK", "int64_t threads = ",
     "(int64_t)gridDim.x * blockDim.x", "blockDim.x"),
    ("LAST_VECTOR_LEFT_OUT", "", "n < count", "n < count - 1"),
    ("REST_LEFT_OUT", "", "sum.count - whole * V", "0"),
    ("REST_AT_THE_START", "ACC, 1>(sum, ", "whole * 16", "0"),
    ("DST_TAKEN_FOR_ALIGNED", "", "(uint64_t)(uintptr_t)sum.dst", "0"),
    ("OWN_TAKEN_FOR_ALIGNED", "uint64_t bits = ",
     "(uint64_t)(uintptr_t)sum.own", "0"),
    ("KERNEL_OF_ANOTHER_DTYPE", "return ",
     "sum_kernel<ULYX_DTYPE_BF16, float>", "sum_kernel<ULYX_DTYPE_F16, float>"),
    ("GRID_OF_WHOLE_BLOCKS_ALONE", "int64_t needed = ",
     "(sum->count - 1) / ULI_MESSAGES_SUM_THREADS + 1",
     "sum->count / ULI_MESSAGES_SUM_THREADS"),
]


def main():
    sources = plant.Sources(sys.argv[1], (KERNELS,))
    for number, (name, lead, place, instead) in enumerate(FAULTS, 1):
        test = f"collective_messages_planted == {number}"
        sources.put(name, KERNELS, lead + place,
                    lead + plant.choice(test, place, instead))
    sources.write(sys.argv[2], "collective_messages",
                  [name for name, *_ in FAULTS])


main()
