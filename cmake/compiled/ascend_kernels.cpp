#include "lora/ascend/kernels.hpp"

LORA_KERNELS_OF_MODELS(template, lora::ascend::Device, LORA_KERNELS_OF_CROSS_ENTROPY)
