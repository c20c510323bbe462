#define LORA_INSTANTIATE_FLOAT32
#include "lora/instantiate.hpp"
