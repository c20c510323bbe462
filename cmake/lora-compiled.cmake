# The targets lora::compiled and lora::compiled_ascend: the library with what every program of a project would instantiate
# compiled once, in place of lora::lora and lora::ascend. They cost nothing where nobody links them, and are compiled with
# the flags of the project, as its own sources are.

if(NOT TARGET lora_compiled)
  set(lora_compiled_dir "${CMAKE_CURRENT_LIST_DIR}/compiled")
  # add_lora_compiled(NAME LIBRARIES SOURCES...)
  function(add_lora_compiled name libraries)
    list(TRANSFORM ARGN PREPEND "${lora_compiled_dir}/" OUTPUT_VARIABLE sources)
    list(TRANSFORM sources APPEND ".cpp")
    add_library(${name} STATIC EXCLUDE_FROM_ALL ${sources})
    target_link_libraries(${name} PUBLIC ${libraries})
    # As the presets do: what -O3 does beyond this takes a quarter more time to compile and makes nothing faster here.
    target_compile_options(${name} PRIVATE
                           $<$<AND:$<CXX_COMPILER_ID:GNU>,$<CONFIG:Release>>:-O2 -fvect-cost-model=dynamic>)
    target_compile_definitions(${name} INTERFACE LORA_COMPILED=1)
    set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  endfunction()

  add_lora_compiled(lora_compiled_types lora::lora float32 bfloat16 float16)
  add_lora_compiled(lora_compiled lora_compiled_types trainer)
  # Which devices a Trainer knows is decided where it is compiled.
  add_lora_compiled(lora_compiled_ascend "lora_compiled_types;lora::ascend" trainer ascend_float32 ascend_bfloat16
                    ascend_float16)
  add_library(lora::compiled ALIAS lora_compiled)
  add_library(lora::compiled_ascend ALIAS lora_compiled_ascend)
endif()
