#include "lora/instantiate.hpp"

LORA_INSTANTIATE_TRAINER
