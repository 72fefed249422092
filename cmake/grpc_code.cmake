# idempotency_add_grpc_code(<target> <file.proto>): a library of what protoc and its plugin for gRPC make of the file,
# included as "<file>.grpc.pb.h". Once for all who ask.
function(idempotency_add_grpc_code target proto)
  if(TARGET ${target})
    return()
  endif()
  get_filename_component(folder "${proto}" DIRECTORY)
  get_filename_component(name "${proto}" NAME_WE)
  set(out "${PROJECT_BINARY_DIR}/generated/${target}")
  file(MAKE_DIRECTORY "${out}")
  set(sources "${out}/${name}.pb.cc" "${out}/${name}.grpc.pb.cc")
  add_custom_command(
    OUTPUT ${sources} "${out}/${name}.pb.h" "${out}/${name}.grpc.pb.h"
    COMMAND
      protobuf::protoc "--proto_path=${folder}" "--cpp_out=${out}" "--grpc_out=${out}"
      "--plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>" "${proto}"
    DEPENDS "${proto}"
    VERBATIM)
  add_library(${target} STATIC EXCLUDE_FROM_ALL ${sources})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE -O0 -g0)
  target_include_directories(${target} SYSTEM PUBLIC "${out}")
  target_link_libraries(${target} PUBLIC gRPC::grpc++ protobuf::libprotobuf)
endfunction()
