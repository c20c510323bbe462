# The targets lora::compiled and lora::compiled_ascend: the library compiled once, in place of lora::lora and lora::ascend:
# the definitions of *.ipp, which the headers then only declare, and what every program would instantiate. They cost
# nothing where nobody links them, and are compiled with the flags of the project, as its own sources are.

if(NOT TARGET lora_compiled)
  set(lora_compiled_dir "${CMAKE_CURRENT_LIST_DIR}/compiled")
  # What beside the level makes loops over rows vector code with g++ (tests/vectors), with products and sums in one
  # instruction (expensive-optimizations); and whether it compiles a release.
  set(lora_vector_code -fstrict-aliasing -finline-small-functions -fexpensive-optimizations -ftree-loop-vectorize
                       -ftree-slp-vectorize -fvect-cost-model=dynamic)
  set(lora_gnu_release $<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>)
  # add_lora_compiled(NAME SOURCES... LIBRARIES...)
  function(add_lora_compiled name)
    cmake_parse_arguments(PARSE_ARGV 1 library "" "" "SOURCES;LIBRARIES")
    list(TRANSFORM library_SOURCES PREPEND "${lora_compiled_dir}/")
    add_library(${name} STATIC EXCLUDE_FROM_ALL ${library_SOURCES})
    set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)  # the sources are as large as they should be
    target_link_libraries(${name} PUBLIC ${library_LIBRARIES})
    # The rest of -O2 takes a third more time to compile and makes nothing faster but decoding's products.
    target_compile_options(${name} PRIVATE "$<${lora_gnu_release}:-O1;${lora_vector_code}>")
    target_compile_definitions(${name} PUBLIC LORA_COMPILED=1)
  endfunction()

  # The largest first, so that several at a time end together.
  add_lora_compiled(lora_compiled
                    SOURCES cpu_models.cpp runs.cpp base.cpp cpu_kernels.cpp models.cpp row_product.cpp
                    LIBRARIES lora::lora)
  add_lora_compiled(lora_compiled_ascend
                    SOURCES ascend_models.cpp ascend_kernels.cpp ascend_trainer.cpp
                    LIBRARIES lora_compiled lora::ascend)
  target_compile_definitions(lora_compiled_ascend PUBLIC LORA_COMPILED_ASCEND=1)
  # What leads kernels through a run, or is done once, needs no more: -Og takes a fifth less time than -O1.
  foreach(optimized IN ITEMS "row_product.cpp -O2" "runs.cpp -Og" "cpu_models.cpp -Og" "models.cpp -Og")
    separate_arguments(optimized)
    list(POP_FRONT optimized source)
    set_property(SOURCE "${lora_compiled_dir}/${source}" TARGET_DIRECTORY lora_compiled
                 APPEND PROPERTY COMPILE_OPTIONS $<${lora_gnu_release}:${optimized}>)
  endforeach()
  add_library(lora::compiled ALIAS lora_compiled)
  add_library(lora::compiled_ascend ALIAS lora_compiled_ascend)
endif()
