// The library in a project with strict warnings, whose own names meet those of the library.

#include <lora/instantiate.hpp>
#include <lora/lora.hpp>

using namespace lora;
using Device = lora::cpu::Device;

int threads_of(const Device& dev) { return dev.threads(); }

LORA_INSTANTIATE(Device, float)
LORA_INSTANTIATE(Device, bf16)
LORA_INSTANTIATE(Device, f16)
LORA_INSTANTIATE_MERGE
LORA_INSTANTIATE_TRAINER
