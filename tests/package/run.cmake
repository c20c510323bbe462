# Builds and runs tests/package/consumer: cmake -D MODE=... -D SOURCE=... -D BINARY=... -D WORK=... -P run.cmake
# MODE is find_package, add_subdirectory, FetchContent, or version (a wrong version must be refused).

function(step what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what} failed (${result}):\n${output}")
  endif()
  message("${output}")
endfunction()

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
set(configure "${CMAKE_COMMAND}" -S "${SOURCE}/tests/package/consumer" -B "${WORK}/build" -G "${GENERATOR}"
              "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_FLAGS=${FLAGS}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}"
              "-DEXPECTED_VERSION=${VERSION}" -DCMAKE_BUILD_TYPE=)

if(MODE STREQUAL "find_package" OR MODE STREQUAL "version")
  step("install" "${CMAKE_COMMAND}" --install "${BINARY}" --prefix "${WORK}/first")
  # A package is moved between machines: what it says must not depend on where it was installed or built.
  file(RENAME "${WORK}/first" "${WORK}/prefix")
  file(GLOB_RECURSE package_files "${WORK}/prefix/*.cmake")
  foreach(package_file IN LISTS package_files)
    file(READ "${package_file}" text)
    foreach(place IN ITEMS "${SOURCE}" "${BINARY}" "${WORK}")
      string(FIND "${text}" "${place}" found)
      if(NOT found EQUAL -1)
        message(FATAL_ERROR "${package_file} names ${place}")
      endif()
    endforeach()
  endforeach()
  list(APPEND configure "-DCMAKE_PREFIX_PATH=${WORK}/prefix" -DMODE=find_package)
elseif(MODE STREQUAL "add_subdirectory")
  list(APPEND configure -DMODE=add_subdirectory "-DLORA_SOURCE_DIR=${SOURCE}" "-DLORA_WITH_ONEDNN=${ONEDNN}")
elseif(MODE STREQUAL "FetchContent")
  list(APPEND configure -DMODE=FetchContent "-DFETCHCONTENT_SOURCE_DIR_LORA=${SOURCE}" "-DLORA_WITH_ONEDNN=${ONEDNN}")
else()
  message(FATAL_ERROR "MODE is '${MODE}'")
endif()

if(MODE STREQUAL "version")
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" this "${VERSION}")
  step("asking for ${this}" ${configure} "-DLORA_WANTED_VERSION=${this}")
  foreach(other IN ITEMS 0.0 0.999 1.0)
    execute_process(COMMAND ${configure} "-DLORA_WANTED_VERSION=${other}" --fresh
                    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(result EQUAL 0 OR NOT output MATCHES "version: ${VERSION}")
      message(FATAL_ERROR "version ${VERSION} passed for ${other}:\n${output}")
    endif()
  endforeach()
  return()
endif()

step("configure" ${configure})
step("build" "${CMAKE_COMMAND}" --build "${WORK}/build")
step("the program" "${WORK}/build/consumer")
file(REMOVE_RECURSE "${WORK}")
