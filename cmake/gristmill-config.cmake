# find_package(gristmill) gives gristmill::tok and gristmill::indexed.
include(CMakeFindDependencyMacro)
find_dependency(nlohmann_json)
find_dependency(ICU COMPONENTS uc i18n data)
find_dependency(OpenSSL COMPONENTS Crypto)
include(${CMAKE_CURRENT_LIST_DIR}/gristmill-targets.cmake)
