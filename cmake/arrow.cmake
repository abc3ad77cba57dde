# parquet-extract, an optional part: Apache Arrow's C++ library (arrow, parquet) is in no Debian 12
# package. ARROW_DIR is a folder with include/ and lib/, as `cmake/fetch_headers.sh DIRECTORY arrow`
# makes it; without it the system's Arrow is taken, where there is one. The part is a component of
# its own (parquet), with the two libraries, and a package of its own:
#   cpack -G TGZ -D CPACK_PART=parquet
set(ARROW_DIR "" CACHE PATH "Apache Arrow's include/ and lib/; empty: the system's")
set(gristmill_arrow)
if(ARROW_DIR)
  foreach(name arrow parquet)
    file(GLOB library ${ARROW_DIR}/lib/lib${name}.so ${ARROW_DIR}/lib/lib${name}.so.*)
    if(NOT library)
      message(FATAL_ERROR "ARROW_DIR: ${ARROW_DIR}/lib has no lib${name}.so")
    endif()
    list(GET library 0 library)
    add_library(gristmill_${name} SHARED IMPORTED)
    set_target_properties(gristmill_${name} PROPERTIES IMPORTED_LOCATION ${library}
                          INTERFACE_INCLUDE_DIRECTORIES ${ARROW_DIR}/include)
    list(APPEND gristmill_arrow gristmill_${name})
    install(FILES ${library} DESTINATION lib/gristmill COMPONENT parquet)
  endforeach()
  # Programs look there in the build, too (cmake/targets.cmake).
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  file(CREATE_LINK ${ARROW_DIR}/lib ${PROJECT_BINARY_DIR}/lib/gristmill SYMBOLIC)
  file(GLOB licences ${ARROW_DIR}/licences/*)
  install(FILES ${licences} DESTINATION ${CMAKE_INSTALL_DOCDIR}/arrow COMPONENT parquet)
else()
  find_package(Arrow QUIET)
  find_package(Parquet QUIET)
  if(TARGET Arrow::arrow_shared AND TARGET Parquet::parquet_shared)
    set(gristmill_arrow Parquet::parquet_shared Arrow::arrow_shared)
  endif()
endif()

if(NOT gristmill_arrow)
  message(STATUS
    "no Apache Arrow: parquet-extract is not built "
    "(cmake/fetch_headers.sh build/arrow arrow, then -DARROW_DIR=build/arrow)")
endif()
