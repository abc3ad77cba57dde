# The archive carries the shared libraries beside the programs; the .deb names them as dependencies.
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_COMPONENTS_ALL runtime development)
else()
  set(CPACK_COMPONENTS_ALL runtime development bundle)
endif()
