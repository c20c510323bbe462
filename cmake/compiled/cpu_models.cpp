#include "lora/instantiate.hpp"

LORA_INSTANTIATE(lora::cpu::Device, float)
LORA_INSTANTIATE(lora::cpu::Device, lora::bf16)
LORA_INSTANTIATE(lora::cpu::Device, lora::f16)
LORA_INSTANTIATE_MERGE
