#include "lora/cpu/kernels.hpp"
#include "lora/cpu/row_product.ipp"

LORA_KERNELS_OF_MODELS(template, lora::cpu::Device, LORA_KERNELS_OF_SOFTMAX)
