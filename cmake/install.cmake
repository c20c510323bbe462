# Installs the headers and a package that find_package(lora) finds; examples/ adds the program.

include(CMakePackageConfigHelpers)

set(lora_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/lora")
if(CMAKE_INSTALL_LIBDIR MATCHES "^lib.*/")
  set(lora_package_dir "${CMAKE_INSTALL_DATADIR}/cmake/lora")
endif()

set(lora_targets lora lora_ascend)
if(LORA_MPI_FOUND)
  list(APPEND lora_targets lora_mpi)
endif()
install(TARGETS ${lora_targets} EXPORT lora_targets FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
                                                    FILE_SET definitions DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(EXPORT lora_targets NAMESPACE lora:: FILE lora-targets.cmake DESTINATION "${lora_package_dir}")

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/lora-config.cmake.in"
                              "${PROJECT_BINARY_DIR}/package/lora-config.cmake"
                              INSTALL_DESTINATION "${lora_package_dir}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/package/lora-config-version.cmake"
                                 COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES "${PROJECT_BINARY_DIR}/package/lora-config.cmake"
              "${PROJECT_BINARY_DIR}/package/lora-config-version.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/FindArrowParquet.cmake" "${CMAKE_CURRENT_LIST_DIR}/FindLibCsv.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/FindSentencePiece.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/FindYamlCpp.cmake" "${CMAKE_CURRENT_LIST_DIR}/FindZstd.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/lora-build-type.cmake" "${CMAKE_CURRENT_LIST_DIR}/lora-compiled.cmake"
        DESTINATION "${lora_package_dir}")
install(DIRECTORY "${CMAKE_CURRENT_LIST_DIR}/compiled" DESTINATION "${lora_package_dir}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
