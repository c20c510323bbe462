#include "lora/ascend/kernels.hpp"

LORA_ASCEND_KERNELS(template)
