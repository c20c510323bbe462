# Finds the Parquet library of Apache Arrow: by its own CMake package where it has one (Apache's apt repository, conda,
# vcpkg), else by headers and libraries, as pyarrow's wheel has them. LORA_ARROW_ROOT is a folder to look in before others.
#
# Gives the target ArrowParquet::parquet, ArrowParquet_VERSION and ArrowParquet_FOUND.

if(LORA_ARROW_ROOT)
  set(ArrowParquet_hints HINTS "${LORA_ARROW_ROOT}")
endif()
find_package(Parquet QUIET CONFIG ${ArrowParquet_hints})
foreach(kind IN ITEMS shared static)
  if(Parquet_FOUND AND TARGET Parquet::parquet_${kind} AND NOT ArrowParquet_LIBRARY)
    set(ArrowParquet_LIBRARY Parquet::parquet_${kind})
    set(ArrowParquet_VERSION "${Parquet_VERSION}")
  endif()
endforeach()

if(NOT TARGET "${ArrowParquet_LIBRARY}")
  find_path(ArrowParquet_INCLUDE_DIR parquet/arrow/reader.h ${ArrowParquet_hints} PATH_SUFFIXES include pyarrow/include)
  if(ArrowParquet_INCLUDE_DIR)
    file(STRINGS "${ArrowParquet_INCLUDE_DIR}/arrow/util/config.h" ArrowParquet_VERSION REGEX "define ARROW_VERSION_STRING")
    string(REGEX MATCH "[0-9]+(\\.[0-9]+)*" ArrowParquet_VERSION "${ArrowParquet_VERSION}")
    cmake_path(GET ArrowParquet_INCLUDE_DIR PARENT_PATH ArrowParquet_prefix)
  endif()
  # The libraries beside these headers; the wheel has them under their versions alone.
  foreach(library IN ITEMS ARROW PARQUET)
    string(TOLOWER ${library} ArrowParquet_name)
    file(GLOB ArrowParquet_versions "${ArrowParquet_prefix}/lib${ArrowParquet_name}.so.[0-9]*")
    list(TRANSFORM ArrowParquet_versions REPLACE "^.*/" "")
    find_library(ArrowParquet_${library}_LIBRARY NAMES ${ArrowParquet_name} ${ArrowParquet_versions}
                 HINTS "${ArrowParquet_prefix}" "${ArrowParquet_prefix}/lib")
  endforeach()
  set(ArrowParquet_LIBRARY "${ArrowParquet_PARQUET_LIBRARY}")
  set(ArrowParquet_required ArrowParquet_INCLUDE_DIR ArrowParquet_ARROW_LIBRARY)
  mark_as_advanced(ArrowParquet_INCLUDE_DIR ArrowParquet_ARROW_LIBRARY ArrowParquet_PARQUET_LIBRARY)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(ArrowParquet REQUIRED_VARS ArrowParquet_LIBRARY ${ArrowParquet_required}
                                  VERSION_VAR ArrowParquet_VERSION)

if(ArrowParquet_FOUND AND NOT TARGET ArrowParquet::parquet)
  add_library(ArrowParquet::parquet INTERFACE IMPORTED)
  if(TARGET "${ArrowParquet_LIBRARY}")
    target_link_libraries(ArrowParquet::parquet INTERFACE "${ArrowParquet_LIBRARY}")
  else()
    target_include_directories(ArrowParquet::parquet SYSTEM INTERFACE "${ArrowParquet_INCLUDE_DIR}")
    target_link_libraries(ArrowParquet::parquet INTERFACE "${ArrowParquet_LIBRARY}" "${ArrowParquet_ARROW_LIBRARY}")
  endif()
endif()
