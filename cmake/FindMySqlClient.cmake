# Finds MariaDB's or MySQL's client library: MySqlClient::MySqlClient, whose header is <mysql.h>.
#
# MySqlClient_PKG_CONFIG_NAME is the name pkg-config knows it by.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  foreach(name IN ITEMS mysqlclient libmariadb)  # the last one found is taken
    pkg_check_modules(PC_${name} QUIET ${name})
    if(PC_${name}_FOUND)
      set(MySqlClient_PKG_CONFIG_NAME ${name})
      set(PC_MySqlClient_INCLUDE_DIRS ${PC_${name}_INCLUDE_DIRS})
      set(PC_MySqlClient_LIBRARY_DIRS ${PC_${name}_LIBRARY_DIRS})
    endif()
  endforeach()
endif()
find_path(
  MySqlClient_INCLUDE_DIR
  NAMES mysql.h
  HINTS ${PC_MySqlClient_INCLUDE_DIRS}
  PATH_SUFFIXES mariadb mysql)
find_library(
  MySqlClient_LIBRARY
  NAMES mariadb mysqlclient
  HINTS ${PC_MySqlClient_LIBRARY_DIRS}
  PATH_SUFFIXES mariadb mysql)
mark_as_advanced(MySqlClient_INCLUDE_DIR MySqlClient_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(MySqlClient REQUIRED_VARS MySqlClient_LIBRARY MySqlClient_INCLUDE_DIR)

if(MySqlClient_FOUND AND NOT TARGET MySqlClient::MySqlClient)
  add_library(MySqlClient::MySqlClient UNKNOWN IMPORTED)
  set_target_properties(
    MySqlClient::MySqlClient
    PROPERTIES IMPORTED_LOCATION "${MySqlClient_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES
                                                          "${MySqlClient_INCLUDE_DIR}")
endif()
