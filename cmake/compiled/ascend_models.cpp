#include "lora/instantiate.hpp"

LORA_INSTANTIATE(lora::ascend::Device, float)
LORA_INSTANTIATE(lora::ascend::Device, lora::bf16)
LORA_INSTANTIATE(lora::ascend::Device, lora::f16)
