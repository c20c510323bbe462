#define LORA_INSTANTIATE_TRAINER
#include "lora/instantiate.hpp"
