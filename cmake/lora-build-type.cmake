# Warns a project that uses the library and compiles without optimization because nobody said otherwise.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES AND NOT "${CMAKE_CXX_FLAGS}" MATCHES "(^| )-O")
  message(WARNING "lora: no CMAKE_BUILD_TYPE is set, so that this project is compiled without optimization; "
                  "training is then many times slower. Configure with -DCMAKE_BUILD_TYPE=Release, "
                  "and -DCMAKE_CXX_FLAGS=-march=native where the program runs on this machine only.")
endif()
