# Builds PROJECT from nothing in BUILD and runs what it built.
file(REMOVE_RECURSE "${BUILD}")
file(MAKE_DIRECTORY "${BUILD}")

function(run)
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${BUILD}" COMMAND_ECHO STDOUT RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "'${ARGN}' failed: ${code}")
  endif()
endfunction()

if(EXISTS "${PROJECT}/Makefile")
  set(ENV{PKG_CONFIG_PATH} "${PREFIX}/${LIBRARY_FOLDER}/pkgconfig")
  run(make -f "${PROJECT}/Makefile" "CXX=${COMPILER}" check)
  return()
endif()

run("${CMAKE_COMMAND}" -S "${PROJECT}" -B "${BUILD}" -G "${GENERATOR}" "-DCMAKE_BUILD_TYPE=Debug"
    "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}"
    "-DCMAKE_PREFIX_PATH=${PREFIX}" "-DIDEMPOTENCY_SOURCE=${SOURCE}")
run("${CMAKE_COMMAND}" --build "${BUILD}" --parallel 2)
run("${CMAKE_CTEST_COMMAND}" --test-dir "${BUILD}" --output-on-failure --no-tests=error)
