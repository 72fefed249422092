# Finds hiredis, which has no usable CMake package before 1.0: Hiredis::hiredis, whose headers are <hiredis/...>.
find_path(Hiredis_INCLUDE_DIR hiredis/hiredis.h)
find_library(Hiredis_LIBRARY hiredis)
mark_as_advanced(Hiredis_INCLUDE_DIR Hiredis_LIBRARY)

if(Hiredis_INCLUDE_DIR)
  file(STRINGS "${Hiredis_INCLUDE_DIR}/hiredis/hiredis.h" Hiredis_version_lines
       REGEX "^#define HIREDIS_(MAJOR|MINOR|PATCH) [0-9]+")
  string(REGEX REPLACE "[^0-9;]" "" Hiredis_VERSION "${Hiredis_version_lines}")
  string(REPLACE ";" "." Hiredis_VERSION "${Hiredis_VERSION}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Hiredis
  REQUIRED_VARS Hiredis_LIBRARY Hiredis_INCLUDE_DIR
  VERSION_VAR Hiredis_VERSION)

if(Hiredis_FOUND AND NOT TARGET Hiredis::hiredis)
  add_library(Hiredis::hiredis UNKNOWN IMPORTED)
  set_target_properties(
    Hiredis::hiredis PROPERTIES IMPORTED_LOCATION "${Hiredis_LIBRARY}"
                                INTERFACE_INCLUDE_DIRECTORIES "${Hiredis_INCLUDE_DIR}")
endif()
