# SPDX-License-Identifier: Apache-2.0
# Run by cpack before it packs: what Debian wants of each package besides, licence
# and changes under the package's name and there alone (packages of two versions
# of the library are installed side by side), compressed manual pages, and
# completion of zsh in the distribution's folder.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} upper)
  set(root ${CPACK_TEMPORARY_DIRECTORY}/${component})
  set(share ${root}/usr/share)
  set(own ${share}/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  file(WRITE ${own}/copyright "Copyright: the authors of ulyx\n"
    "License: Apache-2.0, in /usr/share/common-licenses/Apache-2.0\n")
  get_filename_component(source ${CPACK_RESOURCE_FILE_LICENSE} DIRECTORY)
  configure_file(${source}/CHANGELOG.md ${own}/changelog COPYONLY)
  file(REMOVE ${share}/doc/ulyx/LICENSE)
  file(GLOB pages ${share}/man/man*/*.[1-8])
  execute_process(COMMAND gzip -9n ${own}/changelog ${pages}
    COMMAND_ERROR_IS_FATAL ANY)
  if(EXISTS ${share}/zsh/site-functions)
    file(RENAME ${share}/zsh/site-functions ${share}/zsh/vendor-completions)
  endif()
endforeach()
