// What tests of NPUs share is compiled here, once.
#define LORA_INSTANTIATE_ASCEND
#include "lora/instantiate.hpp"
