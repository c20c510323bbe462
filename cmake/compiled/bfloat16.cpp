#define LORA_INSTANTIATE_BFLOAT16
#include "lora/instantiate.hpp"
