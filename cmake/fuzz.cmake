# Every reader of foreign bytes as a fuzz target. A test replays the kept inputs; with FUZZ=ON, which needs clang, there
# is also a program for libFuzzer, which tests/fuzz/run builds and runs.
if(NOT BUILD_TESTING)
  return()
endif()
add_library(fuzz_targets STATIC tests/fuzz/mutate.cc tests/fuzz/seeds.cc tests/fuzz/targets.cc
  tests/fuzz/targets_text.cc)
target_link_libraries(fuzz_targets PUBLIC convert trainer_checkpoint stream wiki tok indexed)
gristmill_test(fuzz_replay_test SOURCES tests/fuzz/replay_test.cc LINK fuzz_targets)
target_compile_definitions(fuzz_replay_test PRIVATE FUZZ_CORPUS="${PROJECT_SOURCE_DIR}/tests/fuzz/corpus")
if(FUZZ)
  target_compile_options(ops_cpu PRIVATE -include ${PROJECT_SOURCE_DIR}/tests/fuzz/clang_shuffle.h)
  add_executable(fuzz tests/fuzz/fuzz_main.cc)
  target_link_libraries(fuzz PRIVATE fuzz_targets)
  target_link_options(fuzz PRIVATE -fsanitize=fuzzer)
endif()
