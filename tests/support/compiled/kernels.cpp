#include "support/proof_kernels.hpp"

LORA_TEST_KERNELS(template)
