#define LORA_INSTANTIATE_FLOAT16
#include "lora/instantiate.hpp"
