# The archive carries the shared libraries beside the programs; the .deb names them as dependencies. CPACK_PART=parquet packs
# parquet-extract and Arrow's libraries instead, to be installed, or unpacked, beside the rest of the same release.
if(CPACK_PART)
  set(CPACK_PACKAGE_NAME gristmill-${CPACK_PART})
  string(REPLACE "gristmill-" "gristmill-${CPACK_PART}-" CPACK_PACKAGE_FILE_NAME "${CPACK_PACKAGE_FILE_NAME}")
  set(CPACK_COMPONENTS_ALL ${CPACK_PART})
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "gristmill (= ${CPACK_PACKAGE_VERSION})")
elseif(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_COMPONENTS_ALL runtime development)
else()
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
  set(CPACK_COMPONENTS_ALL runtime development bundle)
endif()
