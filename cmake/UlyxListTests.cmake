# SPDX-License-Identifier: Apache-2.0
# Post-build step of a test program: cmake -DPROGRAM=p -DLIST=f -P this. Writes
# the names of p's cases, one a line, into f.
execute_process(COMMAND ${PROGRAM} --list RESULT_VARIABLE result
  OUTPUT_VARIABLE names ERROR_VARIABLE errors TIMEOUT 60)
if(NOT result EQUAL 0 OR names STREQUAL "")
  file(REMOVE ${LIST})
  message(FATAL_ERROR
    "${PROGRAM} --list ended with ${result}: ${names}${errors}")
endif()
file(WRITE ${LIST} "${names}")
