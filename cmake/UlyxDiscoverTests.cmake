# SPDX-License-Identifier: Apache-2.0
# Run when ctest starts (included from a file that ulyx_test writes): registers
# each case of a test program as Suite.Case. The list is made by the program
# itself right after it was linked, so it is never older than the program.
#
# ulyx_add_cases(program list-file timeout labels serial)
function(ulyx_add_cases program list_file timeout labels serial)
  if(NOT EXISTS "${list_file}")
    get_filename_component(name "${program}" NAME)
    add_test("${name}_NOT_BUILT" "${program}")
    return()
  endif()
  file(STRINGS "${list_file}" cases)
  foreach(case IN LISTS cases)
    add_test("${case}" "${program}" --filter "${case}")
    set_tests_properties("${case}" PROPERTIES TIMEOUT "${timeout}"
      SKIP_RETURN_CODE 77 LABELS "${labels}" RUN_SERIAL ${serial})
  endforeach()
endfunction()
