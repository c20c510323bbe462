#define LORA_INSTANTIATE_ASCEND
#include "lora/instantiate.hpp"
