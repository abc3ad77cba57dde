# Run by cpack between staging and packing (CPACK_PRE_BUILD_SCRIPTS): what the archive
# holds then starts on an older glibc than this machine's. The .deb is for this release
# alone, and stays as it was linked.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  execute_process(COMMAND ${CPACK_GRISTMILL_LOWER_GLIBC} ${CPACK_GRISTMILL_GLIBC}
                          ${CPACK_GRISTMILL_GLIBC_SHIM} ${CPACK_TEMPORARY_DIRECTORY}
                  COMMAND_ERROR_IS_FATAL ANY)
endif()
