# SPDX-License-Identifier: Apache-2.0
# Man pages and shell completions, made from the tool's own --help after it is built.
set(MOXIE_SHELL ${CMAKE_BINARY_DIR}/shell)
# In an emulated build a script that starts the program lies there (moxie_program).
set(tool ${CMAKE_BINARY_DIR}/moxie)
add_custom_command(OUTPUT ${MOXIE_SHELL}/moxie.bash ${MOXIE_SHELL}/_moxie ${MOXIE_SHELL}/moxie.fish
    COMMAND ${PROJECT_SOURCE_DIR}/scripts/completions ${tool} ${MOXIE_SHELL}
    DEPENDS moxie_cli moxie ${PROJECT_SOURCE_DIR}/scripts/completions VERBATIM)
add_custom_target(moxie_completions ALL DEPENDS ${MOXIE_SHELL}/moxie.bash)
install(FILES ${MOXIE_SHELL}/moxie.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME moxie)
install(FILES ${MOXIE_SHELL}/_moxie DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${MOXIE_SHELL}/moxie.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

find_program(MOXIE_HELP2MAN help2man)
mark_as_advanced(MOXIE_HELP2MAN)
if(NOT MOXIE_HELP2MAN)
    message(STATUS "no man pages: help2man was not found")
    return()
endif()
# There is one page per sub-command, and only the tool knows the sub-commands. So the rule names moxie.1 as its output,
# and the whole folder is installed.
add_custom_command(OUTPUT ${MOXIE_SHELL}/man1/moxie.1
    COMMAND ${PROJECT_SOURCE_DIR}/scripts/man-pages ${tool} ${MOXIE_SHELL}/man1
    DEPENDS moxie_cli moxie ${PROJECT_SOURCE_DIR}/scripts/man-pages VERBATIM)
add_custom_target(moxie_man_pages ALL DEPENDS ${MOXIE_SHELL}/man1/moxie.1)
install(DIRECTORY ${MOXIE_SHELL}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR})
