#include "lora/cpu/kernels.hpp"

LORA_CPU_KERNELS(template)
