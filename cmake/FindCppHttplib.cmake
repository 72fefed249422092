# Finds cpp-httplib by its pkg-config file, the only one that Debian's package has: CppHttplib::CppHttplib. What it defines (TLS,
# compression) changes the layout of the library's types, so it is taken over.
find_package(PkgConfig QUIET)
if(PKG_CONFIG_FOUND)
  pkg_check_modules(PC_CppHttplib QUIET cpp-httplib)
endif()
find_path(CppHttplib_INCLUDE_DIR httplib.h HINTS ${PC_CppHttplib_INCLUDE_DIRS})
find_library(CppHttplib_LIBRARY cpp-httplib HINTS ${PC_CppHttplib_LIBRARY_DIRS})
mark_as_advanced(CppHttplib_INCLUDE_DIR CppHttplib_LIBRARY)
set(CppHttplib_VERSION "${PC_CppHttplib_VERSION}")

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  CppHttplib
  REQUIRED_VARS CppHttplib_LIBRARY CppHttplib_INCLUDE_DIR PC_CppHttplib_FOUND
  VERSION_VAR CppHttplib_VERSION)

if(CppHttplib_FOUND AND NOT TARGET CppHttplib::CppHttplib)
  find_package(Threads REQUIRED)
  find_package(OpenSSL REQUIRED)
  add_library(CppHttplib::CppHttplib UNKNOWN IMPORTED)
  set_target_properties(
    CppHttplib::CppHttplib
    PROPERTIES IMPORTED_LOCATION "${CppHttplib_LIBRARY}"
               INTERFACE_INCLUDE_DIRECTORIES "${CppHttplib_INCLUDE_DIR}"
               INTERFACE_COMPILE_OPTIONS "${PC_CppHttplib_CFLAGS_OTHER}"
               INTERFACE_LINK_LIBRARIES "Threads::Threads;OpenSSL::SSL;OpenSSL::Crypto")
endif()
