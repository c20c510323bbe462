// What trains on NPUs is compiled here, once, for the program and for tests.
#define LORA_INSTANTIATE_ASCEND
#include "lora/instantiate.hpp"
