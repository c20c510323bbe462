# What holds only while this project is the top level: every target below is then its own. Nothing here reaches a
# project that uses the library.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()

find_program(LORA_CCACHE ccache)
mark_as_advanced(LORA_CCACHE)
if(LORA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${LORA_CCACHE}")
endif()

set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_VERIFY_INTERFACE_HEADER_SETS ON)
add_compile_options(-Wall -Wextra -Wpedantic -Wconversion -Wshadow)

# With -O2, as in the preset release, g++ would leave loops of unknown length as they are.
add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fvect-cost-model=dynamic>)

# Compiling is a tenth shorter where g++ does not tidy its memory up, for some 400 MiB a process.
add_compile_options("$<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Debug>>:--param=ggc-min-expand=300;--param=ggc-min-heapsize=1000000>")

if(LORA_NATIVE)
  add_compile_options(-march=native)
  add_compile_definitions(LORA_NATIVE=1)
endif()

find_package(Python3 3.9 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_custom_target(floors COMMAND Python3::Interpreter "${CMAKE_CURRENT_SOURCE_DIR}/cmake/check_floors.py" VERBATIM)
endif()
add_custom_target(format COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/cmake/check_format.sh" VERBATIM)
