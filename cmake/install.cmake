include(CMakePackageConfigHelpers)

set(idempotency_package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/idempotency")

# idempotency_pkg_config(<component or ""> <description> <requires> <libs>)
function(idempotency_pkg_config component description requires libs)
  set(IDEMPOTENCY_PC_NAME "idempotency")
  if(component)
    string(APPEND IDEMPOTENCY_PC_NAME "-${component}")
  endif()
  set(IDEMPOTENCY_PC_DESCRIPTION "${description}")
  set(IDEMPOTENCY_PC_REQUIRES "${requires}")
  set(IDEMPOTENCY_PC_LIBS "${libs}")
  # Relative to the file itself, so that an installed tree can be moved.
  file(RELATIVE_PATH IDEMPOTENCY_PC_PREFIX "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/p")
  string(REGEX REPLACE "/$" "" IDEMPOTENCY_PC_PREFIX "\${pcfiledir}/${IDEMPOTENCY_PC_PREFIX}")
  configure_file(
    "${PROJECT_SOURCE_DIR}/cmake/idempotency.pc.in"
    "${PROJECT_BINARY_DIR}/package/${IDEMPOTENCY_PC_NAME}.pc" @ONLY)
  install(
    FILES "${PROJECT_BINARY_DIR}/package/${IDEMPOTENCY_PC_NAME}.pc"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
    COMPONENT development)
endfunction()

get_property(idempotency_installed_targets GLOBAL PROPERTY IDEMPOTENCY_INSTALLED_TARGETS)
foreach(target IN LISTS idempotency_installed_targets)
  get_target_property(name ${target} EXPORT_NAME)
  # A file of its own for each component, so that asking for one needs nothing of another.
  install(
    TARGETS ${target}
    EXPORT idempotency-${name}
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development
    FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT development)
  install(
    EXPORT idempotency-${name}
    NAMESPACE idempotency::
    FILE idempotency-${name}-targets.cmake
    DESTINATION "${idempotency_package_folder}"
    COMPONENT development)
endforeach()

set(IDEMPOTENCY_BACKENDS_OF_OPEN "")
foreach(backend IN ITEMS sqlite redis mysql)
  if(TARGET idempotency_${backend})
    string(APPEND IDEMPOTENCY_BACKENDS_OF_OPEN " ${backend}")
  endif()
endforeach()

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/idempotency-config.cmake.in"
  "${PROJECT_BINARY_DIR}/package/idempotency-config.cmake"
  INSTALL_DESTINATION "${idempotency_package_folder}"
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/idempotency-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(
  FILES "${PROJECT_BINARY_DIR}/package/idempotency-config.cmake"
        "${PROJECT_BINARY_DIR}/package/idempotency-config-version.cmake"
  DESTINATION "${idempotency_package_folder}"
  COMPONENT development)

idempotency_pkg_config("" "${PROJECT_DESCRIPTION}" "libcrypto"
                       "-L\${libdir} -lidempotency -pthread")
idempotency_pkg_config(patterns "Other ways to be idempotent, beside idempotency's guard"
                       "idempotency = ${PROJECT_VERSION}" "-L\${libdir} -lidempotency_patterns")
idempotency_pkg_config(http "Idempotency-Key for HTTP servers"
                       "idempotency = ${PROJECT_VERSION}, idempotency-patterns = ${PROJECT_VERSION}"
                       "-L\${libdir} -lidempotency_http")
if(IDEMPOTENCY_WITH_HTTPLIB)
  install(
    FILES "${PROJECT_SOURCE_DIR}/cmake/FindCppHttplib.cmake"
    DESTINATION "${idempotency_package_folder}"
    COMPONENT development)
  idempotency_pkg_config(httplib "Idempotency-Key for cpp-httplib"
                         "idempotency-http = ${PROJECT_VERSION}, cpp-httplib, libssl" "")
endif()
if(IDEMPOTENCY_WITH_BEAST)  # Boost has no pkg-config files; its headers are in the compiler's path
  idempotency_pkg_config(beast "Idempotency-Key for Boost.Beast"
                         "idempotency-http = ${PROJECT_VERSION}" "")
endif()
idempotency_pkg_config(consumer "Message consumers over idempotency's guard"
                       "idempotency = ${PROJECT_VERSION}" "-L\${libdir} -lidempotency_consumer")
idempotency_pkg_config(operations "Reconciliation and purging of idempotency's records"
                       "idempotency = ${PROJECT_VERSION}" "-L\${libdir} -lidempotency_operations")
if(IDEMPOTENCY_WITH_SQLITE)
  idempotency_pkg_config(sqlite "SQLite store of idempotency"
                         "idempotency = ${PROJECT_VERSION}, sqlite3"
                         "-L\${libdir} -lidempotency_sqlite")
endif()
if(IDEMPOTENCY_WITH_REDIS)
  install(
    FILES "${PROJECT_SOURCE_DIR}/cmake/FindHiredis.cmake"
    DESTINATION "${idempotency_package_folder}"
    COMPONENT development)
  idempotency_pkg_config(redis "Redis store of idempotency"
                         "idempotency = ${PROJECT_VERSION}, hiredis, libssl"
                         "-L\${libdir} -lidempotency_redis")
  idempotency_pkg_config(redis_streams "Consumers of Redis Streams over idempotency's guard"
                         "idempotency-redis = ${PROJECT_VERSION}, idempotency-consumer = ${PROJECT_VERSION}"
                         "-L\${libdir} -lidempotency_redis_streams")
endif()
if(IDEMPOTENCY_WITH_RABBITMQ)
  install(
    FILES "${PROJECT_SOURCE_DIR}/cmake/FindRabbitMqC.cmake"
    DESTINATION "${idempotency_package_folder}"
    COMPONENT development)
  idempotency_pkg_config(rabbitmq "Consumers of RabbitMQ queues over idempotency's guard"
                         "idempotency-consumer = ${PROJECT_VERSION}, librabbitmq, libssl"
                         "-L\${libdir} -lidempotency_rabbitmq")
endif()
if(IDEMPOTENCY_WITH_KAFKA)
  install(
    FILES "${PROJECT_SOURCE_DIR}/cmake/FindRdKafka.cmake"
    DESTINATION "${idempotency_package_folder}"
    COMPONENT development)
  idempotency_pkg_config(kafka "Consumers of Kafka topics over idempotency's guard"
                         "idempotency-consumer = ${PROJECT_VERSION}, rdkafka"
                         "-L\${libdir} -lidempotency_kafka")
endif()
if(IDEMPOTENCY_WITH_MYSQL)
  install(
    FILES "${PROJECT_SOURCE_DIR}/cmake/FindMySqlClient.cmake"
    DESTINATION "${idempotency_package_folder}"
    COMPONENT development)
  find_package(MySqlClient REQUIRED)
  idempotency_pkg_config(mysql "MySQL and MariaDB store of idempotency"
                         "idempotency = ${PROJECT_VERSION}, ${MySqlClient_PKG_CONFIG_NAME}"
                         "-L\${libdir} -lidempotency_mysql")
endif()
if(IDEMPOTENCY_WITH_OPEN)
  set(open_requires "idempotency = ${PROJECT_VERSION}")
  foreach(backend IN ITEMS sqlite redis mysql)
    if(TARGET idempotency_${backend})
      string(APPEND open_requires ", idempotency-${backend} = ${PROJECT_VERSION}")
    endif()
  endforeach()
  idempotency_pkg_config(open "Stores of idempotency by address" "${open_requires}"
                         "-L\${libdir} -lidempotency_open")
endif()
if(IDEMPOTENCY_WITH_JSON)
  idempotency_pkg_config(json "JSON codec of idempotency"
                         "idempotency = ${PROJECT_VERSION}, nlohmann_json" "")
endif()
if(IDEMPOTENCY_WITH_PROTOBUF)
  idempotency_pkg_config(protobuf "Protobuf codec of idempotency"
                         "idempotency = ${PROJECT_VERSION}, protobuf" "")
endif()
if(IDEMPOTENCY_WITH_GRPC)
  idempotency_pkg_config(grpc "Idempotency keys for gRPC services"
                         "idempotency-http = ${PROJECT_VERSION}, idempotency-protobuf = ${PROJECT_VERSION}, grpc++"
                         "-L\${libdir} -lidempotency_grpc")
endif()
if(IDEMPOTENCY_WITH_PROMETHEUS)
  idempotency_pkg_config(prometheus "Metrics of idempotency for Prometheus"
                         "idempotency = ${PROJECT_VERSION}, prometheus-cpp-core"
                         "-L\${libdir} -lidempotency_prometheus")
  install(
    FILES "${PROJECT_SOURCE_DIR}/tools/grafana/idempotency.json"
          "${PROJECT_SOURCE_DIR}/tools/grafana/alerts.yaml"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/idempotency/grafana"
    COMPONENT development)
endif()
if(IDEMPOTENCY_WITH_TESTING)
  idempotency_pkg_config(testing "Conformance suite for idempotency's stores"
                         "idempotency = ${PROJECT_VERSION}, gtest" "")
endif()

install(
  FILES "${PROJECT_SOURCE_DIR}/LICENSE"
  DESTINATION "${CMAKE_INSTALL_DOCDIR}"
  COMPONENT development)
