// Once for each set of devices that a Trainer chooses from.
#include "lora/instantiate.hpp"

LORA_INSTANTIATE_TRAINER
