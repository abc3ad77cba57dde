# The layout planner: the tables of measured cards are put into the library as text, so that the programs need no file.
set(card_rows)
set(card_count 0)
file(GLOB cards CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/trainer/planning/cards/*.json)
foreach(card ${cards})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${card})
  get_filename_component(name ${card} NAME_WE)
  file(READ ${card} text)
  string(APPEND card_rows "    {\"${name}\", R\"json(${text})json\"},\n")
  math(EXPR card_count "${card_count} + 1")
endforeach()
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/card_files.cc @ONLY CONTENT [[// Made by cmake/planning.cmake.
namespace trainer {
struct CardFile {
  const char* name;
  const char* text;
};
extern const CardFile kCardFiles[];
extern const int kCardFileCount;
const CardFile kCardFiles[] = {
@card_rows@};
const int kCardFileCount = @card_count@;
}  // namespace trainer
]])
gristmill_library(trainer_planning SOURCES trainer/planning/card_json.cc trainer/planning/data_sheets.cc
  trainer/planning/simulation.cc trainer/planning/times.cc ${PROJECT_BINARY_DIR}/card_files.cc LINK trainer_core cli_rows
  nlohmann_json::nlohmann_json)
gristmill_test(planning_test SOURCES tests/trainer/planning_test.cc LINK trainer_planning)
gristmill_test(plan_program_test SOURCES tests/trainer/plan_program_test.cc LINK indexed nlohmann_json::nlohmann_json)
if(BUILD_TESTING)
  add_dependencies(plan_program_test trainer plan-training)
  target_compile_definitions(plan_program_test PRIVATE TRAINER_PROGRAM="$<TARGET_FILE:trainer>"
                             PLAN_PROGRAM="$<TARGET_FILE:plan-training>" $<$<BOOL:${CUDA}>:GRISTMILL_CUDA>)
endif()
