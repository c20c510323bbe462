#include "lora/instantiate.hpp"

LORA_INSTANTIATE(lora::cpu::Device, float)
LORA_INSTANTIATE_MERGE
