# Compiles SNIPPET twice: as it stands it must pass, with LORA_FAIL it must fail and say why.

file(STRINGS "${SNIPPET}" line REGEX "^// must say: ")
if(NOT line)
  message(FATAL_ERROR "${SNIPPET} has no line '// must say: ...'")
endif()
string(REGEX REPLACE "^// must say: " "" phrase "${line}")

execute_process(COMMAND "${COMPILER}" ${ARGUMENTS} "${SNIPPET}" RESULT_VARIABLE result ERROR_VARIABLE output)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${SNIPPET} must compile without LORA_FAIL:\n${output}")
endif()

execute_process(COMMAND "${COMPILER}" ${ARGUMENTS} -DLORA_FAIL "${SNIPPET}" RESULT_VARIABLE result ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "${SNIPPET} compiled with LORA_FAIL")
endif()
string(FIND "${output}" "${phrase}" found)
if(found EQUAL -1)
  message(FATAL_ERROR "the message does not say '${phrase}':\n${output}")
endif()
