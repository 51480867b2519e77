# SPDX-License-Identifier: Apache-2.0
# Manual pages and completion of what is installed, into share/ of the build
# folder: by scripts/manual, from the programs' tables of options, the settings,
# the public headers and the example of a tuning file.
file(GLOB manual_scripts CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/scripts/manual/*.py)
file(GLOB manual_headers CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/include/ulyx/*.h)
set(manual_tuning ${PROJECT_SOURCE_DIR}/examples/ulyx.tuning)
set(manual_stamp ${PROJECT_BINARY_DIR}/share/made)
set(manual_files "")
foreach(program ${ULYX_INSTALLED_PROGRAMS})
  list(APPEND manual_files $<TARGET_FILE:${program}>)
endforeach()
if(ULYX_TOOLS) # a program of Python that lies beside the others
  list(APPEND manual_files $<TARGET_FILE_DIR:ulyx_info>/ulyx_plot)
  file(GLOB manual_plot CONFIGURE_DEPENDS
    ${PROJECT_SOURCE_DIR}/tools/ulyx_plot/*.py)
endif()
add_custom_command(OUTPUT ${manual_stamp}
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/scripts/manual/make.py
    --version ${PROJECT_VERSION} --include ${PROJECT_SOURCE_DIR}/include
    --tuning ${manual_tuning} --out ${PROJECT_BINARY_DIR}/share ${manual_files}
  COMMAND ${CMAKE_COMMAND} -E touch ${manual_stamp}
  DEPENDS ${ULYX_INSTALLED_PROGRAMS} ${manual_scripts} ${manual_headers}
    ${manual_plot} ${manual_tuning}
  COMMENT "Making manual pages and completion" VERBATIM)
add_custom_target(ulyx_manual ALL DEPENDS ${manual_stamp})

set(manual_share ${PROJECT_BINARY_DIR}/share)
install(DIRECTORY ${manual_share}/man/man3 DESTINATION ${CMAKE_INSTALL_MANDIR}
  COMPONENT development)
foreach(section 1 5 7)
  install(DIRECTORY ${manual_share}/man/man${section}
    DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT tools OPTIONAL)
endforeach()
foreach(folder bash-completion/completions zsh/site-functions)
  install(DIRECTORY ${manual_share}/${folder}/
    DESTINATION ${CMAKE_INSTALL_DATADIR}/${folder} COMPONENT tools)
endforeach()
