#include "lora/instantiate.hpp"

LORA_INSTANTIATE(lora::ascend::Device, float)
