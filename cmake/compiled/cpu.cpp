#define LORA_INSTANTIATE
#include "lora/instantiate.hpp"
