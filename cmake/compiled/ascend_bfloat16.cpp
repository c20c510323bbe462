#define LORA_INSTANTIATE_ASCEND_BFLOAT16
#include "lora/instantiate.hpp"
