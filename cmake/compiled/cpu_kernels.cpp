#include "lora/cpu/kernels.hpp"

LORA_KERNELS_OF_MODELS(template, lora::cpu::Device, LORA_KERNELS_OF_SOFTMAX)
