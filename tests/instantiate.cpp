// What the tests share is compiled here, once.
#define LORA_INSTANTIATE
#include "lora/instantiate.hpp"
