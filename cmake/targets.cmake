# The three kinds of target that every CMakeLists.txt lists: a room (library), a program, a test.

# gristmill_library(NAME SOURCES file... LINK target...): one room.
function(gristmill_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
  add_library(${name} STATIC ${arg_SOURCES})
  add_library(gristmill::${name} ALIAS ${name})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/gristmill>)
  target_link_libraries(${name} PUBLIC ${arg_LINK})
  target_compile_features(${name} PUBLIC cxx_std_20)  # for those who use the installed library
  set_target_properties(${name} PROPERTIES OUTPUT_NAME gristmill_${name})
endfunction()

# gristmill_program(NAME [COMPONENT component] SOURCES file... LINK target...): one program, in
# build/.../bin, installed as a part of the component, runtime if none is named.
function(gristmill_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "COMPONENT" "SOURCES;LINK")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  # DT_RPATH rather than DT_RUNPATH: the bundled libraries find each other by it, too.
  # The same in the build: CMake would put a colon behind another one, and the empty name there is
  # the folder in which a program is started.
  set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/gristmill"
                        BUILD_WITH_INSTALL_RPATH ON)
  target_link_options(${name} PRIVATE LINKER:--disable-new-dtags)
  set_property(GLOBAL APPEND PROPERTY gristmill_programs ${name})
  if(arg_COMPONENT)
    set_property(GLOBAL PROPERTY gristmill_component_of_${name} ${arg_COMPONENT})
    install(TARGETS ${name} RUNTIME COMPONENT ${arg_COMPONENT})
  else()
    install(TARGETS ${name} RUNTIME_DEPENDENCY_SET gristmill_programs RUNTIME COMPONENT runtime)
  endif()
endfunction()

# gristmill_test(NAME [WAITS] [OPTIMIZED file...] SOURCES file... LINK target...): a GoogleTest
# program; every case is a ctest, with the label gpu where NAME ends in _cuda_test. The tests' own
# code is compiled without optimization, which halves the time for it; only files named OPTIMIZED,
# which have long loops, are not. They come first, so that the linker takes their copies of
# templates. What a test links is always optimized. WAITS: its cases mostly wait for processes and
# deadlines, and are started first.
function(gristmill_test name)
  if(NOT BUILD_TESTING)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "WAITS" "" "OPTIMIZED;SOURCES;LINK")
  add_executable(${name} ${arg_OPTIMIZED} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK} GTest::gmock GTest::gtest GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/golden"
                             SHARED_DATA_DIR="${PROJECT_SOURCE_DIR}/../shared/data")
  target_compile_options(${name} PRIVATE -O0)
  set_source_files_properties(${arg_OPTIMIZED} PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O2>)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  set(properties TIMEOUT 300)
  if(name MATCHES "_cuda_test$")
    list(APPEND properties LABELS gpu)
  endif()
  if(arg_WAITS)
    list(APPEND properties COST 500)
  endif()
  gtest_discover_tests(${name} TEST_PREFIX ${name}. DISCOVERY_MODE PRE_TEST PROPERTIES
    ${properties})
endfunction()
