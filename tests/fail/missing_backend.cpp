// must say: include lora/<backend>/kernels.hpp
#include <lora/kernel/gemm.hpp>

struct Bare {};

void product(Bare& dev, lora::View<Bare, const float> a, lora::View<Bare, float> c) {
#ifdef LORA_FAIL
  lora::kernel::gemm(dev, lora::kernel::Form::nt, a, a, c);
#else
  static_cast<void>(dev);
  static_cast<void>(a);
  static_cast<void>(c);
#endif
}
