# Finds rabbitmq-c, whose own package is not everywhere: RabbitMqC::RabbitMqC, whose headers are <amqp.h>. Built without TLS it mostly has no
# <amqp_ssl_socket.h>, and then it is not found.
find_path(RabbitMqC_INCLUDE_DIR amqp_ssl_socket.h)
find_library(RabbitMqC_LIBRARY rabbitmq)
mark_as_advanced(RabbitMqC_INCLUDE_DIR RabbitMqC_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(RabbitMqC REQUIRED_VARS RabbitMqC_LIBRARY RabbitMqC_INCLUDE_DIR)

if(RabbitMqC_FOUND AND NOT TARGET RabbitMqC::RabbitMqC)
  add_library(RabbitMqC::RabbitMqC UNKNOWN IMPORTED)
  set_target_properties(
    RabbitMqC::RabbitMqC PROPERTIES IMPORTED_LOCATION "${RabbitMqC_LIBRARY}"
                                    INTERFACE_INCLUDE_DIRECTORIES "${RabbitMqC_INCLUDE_DIR}")
endif()
