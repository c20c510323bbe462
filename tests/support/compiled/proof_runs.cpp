#include "support/instantiate.hpp"

LORA_PROOF_RUNS(template, float)
LORA_PROOF_RUNS(template, lora::bf16)
