# Finds yaml-cpp, whose own package calls its target yaml-cpp up to 0.7 and yaml-cpp::yaml-cpp from 0.8 on: what is installed
# here may not depend on which of them built it.
#
# Gives the target YamlCpp::yaml-cpp and YamlCpp_FOUND.

find_package(yaml-cpp 0.6 QUIET CONFIG)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(YamlCpp REQUIRED_VARS yaml-cpp_FOUND)

if(YamlCpp_FOUND AND NOT TARGET YamlCpp::yaml-cpp)
  add_library(YamlCpp::yaml-cpp INTERFACE IMPORTED)
  if(TARGET yaml-cpp::yaml-cpp)
    target_link_libraries(YamlCpp::yaml-cpp INTERFACE yaml-cpp::yaml-cpp)
  else()
    target_link_libraries(YamlCpp::yaml-cpp INTERFACE yaml-cpp)
  endif()
endif()
