# cpack -G DEB: a package for Debian and what is built on it; cpack -G TGZ: the same files to unpack anywhere. Both have the
# program as it was built: preset package builds it for any processor. cmake/make_release.sh does all of it.

set(CPACK_PACKAGE_NAME lora)
set(CPACK_PACKAGE_VENDOR "lora")
set(CPACK_PACKAGE_CONTACT "The maintainers of lora <lora@localhost>")
set(CPACK_PACKAGE_DESCRIPTION "The program lora trains LoRA adapters, or all weights, of Qwen- and Llama-style models on CPUs and
Ascend NPUs, and evaluates, samples from, merges and exports them. The library that it is made of comes as C++ headers with a
package for CMake.")
set(CPACK_PACKAGE_FILE_NAME "lora-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # by dpkg-shlibdeps, of dpkg-dev
if(LORA_MPI_FOUND)
  set(CPACK_DEBIAN_PACKAGE_RECOMMENDS openmpi-bin)  # for lora launch
endif()
# What programs that use the headers are built with.
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "g++, cmake, libeigen3-dev, nlohmann-json3-dev, libsentencepiece-dev, libdnnl-dev, \
zlib1g-dev, libzstd-dev, libcsv-dev, libyaml-cpp-dev, libopenmpi-dev")

set(CPACK_GENERATOR DEB TGZ)
include(CPack)
