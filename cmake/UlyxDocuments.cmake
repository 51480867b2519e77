# SPDX-License-Identifier: Apache-2.0
# Run by install(), after the documents are in place: programs have no folder
# before their name, as they are in PATH, and the two links that leave the
# documents lead to where their targets are installed. Set before: docdir, and
# the paths to_include and to_schema from there.
if(IS_ABSOLUTE "${docdir}")
  set(root "$ENV{DESTDIR}${docdir}")
else()
  set(root "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${docdir}")
endif()
file(GLOB_RECURSE documents "${root}/*.md")
foreach(document ${documents})
  file(READ "${document}" text)
  string(REPLACE "build/bin/" "" text "${text}")
  string(REPLACE "](include/ulyx)" "](${to_include})" text "${text}")
  string(REPLACE "](perf/schema.json)" "](${to_schema})" text "${text}")
  file(WRITE "${document}" "${text}")
endforeach()
