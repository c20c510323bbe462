#define LORA_INSTANTIATE_ASCEND_FLOAT32
#include "lora/instantiate.hpp"
