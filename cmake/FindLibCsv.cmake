# Finds libcsv, which has no CMake package.
#
# Gives the target LibCsv::csv and LibCsv_FOUND.

find_path(LibCsv_INCLUDE_DIR csv.h)
if(LibCsv_INCLUDE_DIR)  # other libraries have a header of that name
  file(STRINGS "${LibCsv_INCLUDE_DIR}/csv.h" LibCsv_is_it REGEX "csv_parse" LIMIT_COUNT 1)
endif()
find_library(LibCsv_LIBRARY csv)
mark_as_advanced(LibCsv_INCLUDE_DIR LibCsv_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibCsv REQUIRED_VARS LibCsv_LIBRARY LibCsv_INCLUDE_DIR LibCsv_is_it)

if(LibCsv_FOUND AND NOT TARGET LibCsv::csv)
  add_library(LibCsv::csv UNKNOWN IMPORTED)
  set_target_properties(LibCsv::csv PROPERTIES
    IMPORTED_LOCATION "${LibCsv_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${LibCsv_INCLUDE_DIR}")
endif()
