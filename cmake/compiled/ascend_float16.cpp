#define LORA_INSTANTIATE_ASCEND_FLOAT16
#include "lora/instantiate.hpp"
