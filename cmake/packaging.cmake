# What `cmake --install` installs and what `cpack` packs. Included last by CMakeLists.txt.
#
# Components: runtime (programs, man pages, completions), development (libraries, headers, CMake
# package), bundle (the shared libraries that the programs need, only in the relocatable archive:
# programs look for them in ../lib/gristmill relative to themselves, so that the archive runs where
# it is unpacked, without root).

set(CMAKE_INSTALL_LIBDIR_BUNDLE lib/gristmill)
install(TARGETS tok indexed EXPORT gristmill ARCHIVE COMPONENT development)
foreach(room libtok libindexed)
  install(DIRECTORY ${room} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gristmill COMPONENT development
          FILES_MATCHING PATTERN "*.h")
endforeach()
install(EXPORT gristmill NAMESPACE gristmill:: FILE gristmill-targets.cmake COMPONENT development
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gristmill)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gristmill-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
string(REGEX MATCH "^[0-9]+" GRISTMILL_ICU "${ICU_VERSION}")
set(package ${PROJECT_BINARY_DIR}/gristmill-config)
configure_file(cmake/gristmill-config.cmake.in ${package}.cmake @ONLY)
install(FILES ${package}.cmake ${package}-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/gristmill COMPONENT development)
install(PROGRAMS scripts/run scripts/pretrain_gpt.py scripts/train.py scripts/deepy.py
        DESTINATION ${CMAKE_INSTALL_DATADIR}/gristmill/scripts COMPONENT runtime)
install(PROGRAMS scripts/tools/preprocess_data.py scripts/tools/merge_datasets.py
        DESTINATION ${CMAKE_INSTALL_DATADIR}/gristmill/scripts/tools COMPONENT runtime)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)
file(GLOB documents CONFIGURE_DEPENDS docs/*.md)
install(FILES ${documents} DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT runtime)
install(FILES Makefile.dist DESTINATION ${CMAKE_INSTALL_DATADIR}/gristmill COMPONENT runtime)
install(DIRECTORY demo DESTINATION ${CMAKE_INSTALL_DATADIR}/gristmill COMPONENT runtime
  USE_SOURCE_PERMISSIONS)
install(DIRECTORY trainer/planning/cards DESTINATION ${CMAKE_INSTALL_DATADIR}/gristmill COMPONENT
  runtime)

# Man pages and completions come from the programs' own flag rows. A page of section 5 has no flags,
# so any program can convert it to roff.
get_property(programs GLOBAL PROPERTY gristmill_programs)
set(pages)
macro(gristmill_page source program section component)
  get_filename_component(name ${source} NAME_WLE)
  set(page ${PROJECT_BINARY_DIR}/man/${name})
  add_custom_command(OUTPUT ${page} DEPENDS ${source} ${program}
                     COMMAND $<TARGET_FILE:${program}> --help-man=${source} > ${page}.tmp
                     COMMAND ${CMAKE_COMMAND} -E rename ${page}.tmp ${page})
  list(APPEND pages ${page})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section} COMPONENT ${component})
endmacro()
foreach(program ${programs})
  set(completion ${PROJECT_BINARY_DIR}/completions/${program})
  get_property(component GLOBAL PROPERTY gristmill_component_of_${program})
  if(NOT component)
    set(component runtime)
  endif()
  add_custom_command(OUTPUT ${completion} DEPENDS ${program}
                     COMMAND $<TARGET_FILE:${program}> --help-completion > ${completion}.tmp
                     COMMAND ${CMAKE_COMMAND} -E rename ${completion}.tmp ${completion})
  list(APPEND pages ${completion})
  install(FILES ${completion} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
          COMPONENT ${component})
  if(EXISTS ${PROJECT_SOURCE_DIR}/docs/man/${program}.1.md)
    gristmill_page(${PROJECT_SOURCE_DIR}/docs/man/${program}.1.md ${program} 1 ${component})
  endif()
endforeach()
file(GLOB formats CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/format/*.5.md)
foreach(source ${formats})
  list(GET programs 0 any_program)
  gristmill_page(${source} ${any_program} 5 runtime)
endforeach()
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/man ${PROJECT_BINARY_DIR}/completions)
add_custom_target(installable ALL DEPENDS ${pages} tok indexed COMMENT "Programs, libraries, pages")
if(NOT SANITIZE AND NOT FUZZ)
  # The oldest glibc on which the archive and the wheel start: Ubuntu 18.04's. RHEL 8 has 2.28.
  set(CPACK_GRISTMILL_GLIBC 2.27)
  add_subdirectory(packaging)
  add_dependencies(installable lower-glibc glibc_shim)
  set(CPACK_GRISTMILL_LOWER_GLIBC ${PROJECT_BINARY_DIR}/packaging/lower-glibc)
  set(CPACK_GRISTMILL_GLIBC_SHIM ${PROJECT_BINARY_DIR}/packaging/libgristmill_glibc.so)
  set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/packaging/lower_glibc.cmake)
endif()

# glibc and the loader are the system's; no program is linked to CUDA's libraries, which are opened
# at run time.
install(RUNTIME_DEPENDENCY_SET gristmill_programs
        PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|pthread|rt)\\.so"
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR_BUNDLE} COMPONENT bundle EXCLUDE_FROM_ALL)
install(CODE
  "execute_process(COMMAND ${PROJECT_SOURCE_DIR}/packaging/licences
                              \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}
                              COMMAND_ERROR_IS_FATAL ANY)" COMPONENT bundle EXCLUDE_FROM_ALL)

set(CPACK_PACKAGE_NAME gristmill)
set(CPACK_PACKAGE_CONTACT "the gristmill authors <maintainers@gristmill.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY
  "Raw text to a language model: Megatron datasets, trainer, conversion")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_FILE_NAME gristmill-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${ARROW_DIR}/lib)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# What find_package(gristmill) needs in other projects.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libicu-dev, libssl-dev, nlohmann-json3-dev")
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/cpack_components.cmake)
include(CPack)
