// The library in a project with strict warnings, whose own names meet those of the library.

#include <lora/instantiate.hpp>
#include <lora/lora.hpp>

using namespace lora;
using Device = lora::cpu::Device;

int threads_of(const Device& dev) { return dev.threads(); }
