# What this project's own targets are compiled with. Linked privately and never exported, so that
# users get neither our warnings nor our sanitizers.
add_library(idempotency_project_options INTERFACE)

target_compile_options(
  idempotency_project_options
  INTERFACE -Wall
            -Wextra
            -Wpedantic
            -Wshadow
            -Wconversion
            -Wsign-conversion
            -Wnon-virtual-dtor
            -Wold-style-cast
            $<$<BOOL:${IDEMPOTENCY_WARNINGS_AS_ERRORS}>:-Werror>)

if(IDEMPOTENCY_SANITIZE STREQUAL "address+undefined")
  set(idempotency_sanitizer_flags -fsanitize=address,undefined -fno-sanitize-recover=all
                                  -fno-omit-frame-pointer)
elseif(IDEMPOTENCY_SANITIZE STREQUAL "thread")
  set(idempotency_sanitizer_flags -fsanitize=thread -fno-omit-frame-pointer)
elseif(IDEMPOTENCY_SANITIZE STREQUAL "none")
  set(idempotency_sanitizer_flags)
else()
  message(FATAL_ERROR "IDEMPOTENCY_SANITIZE is '${IDEMPOTENCY_SANITIZE}'; "
                      "it must be none, address+undefined or thread.")
endif()
target_compile_options(idempotency_project_options INTERFACE ${idempotency_sanitizer_flags})
target_link_options(idempotency_project_options INTERFACE ${idempotency_sanitizer_flags})
