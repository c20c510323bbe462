# The targets lora::compiled and lora::compiled_ascend: the library with what every program of a project would instantiate
# compiled once, in place of lora::lora and lora::ascend. They cost nothing where nobody links them, and are compiled with
# the flags of the project, as its own sources are.

if(NOT TARGET lora_compiled)
  set(lora_compiled_dir "${CMAKE_CURRENT_LIST_DIR}/compiled")
  # add_lora_compiled(NAME SOURCE LIBRARIES...)
  function(add_lora_compiled name source)
    add_library(${name} STATIC EXCLUDE_FROM_ALL "${lora_compiled_dir}/${source}")
    target_link_libraries(${name} PUBLIC ${ARGN})
    # As the presets do: what -O3 does beyond this takes a quarter more time to compile and makes nothing faster here.
    target_compile_options(${name} PRIVATE
                           $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-O2 -fvect-cost-model=dynamic>)
    target_compile_definitions(${name} INTERFACE LORA_COMPILED=1)
  endfunction()

  add_lora_compiled(lora_compiled cpu.cpp lora::lora)
  # Linked before lora_compiled: both hold a Trainer, and this one knows NPUs.
  add_lora_compiled(lora_compiled_ascend ascend.cpp lora_compiled lora::ascend)
  add_library(lora::compiled ALIAS lora_compiled)
  add_library(lora::compiled_ascend ALIAS lora_compiled_ascend)
endif()
