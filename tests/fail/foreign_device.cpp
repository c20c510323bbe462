// must say: no matching function
#include <lora/kernel/gemm.hpp>

// With what a span asks for.
struct Here {
  lora::Profile* profile() const;
  lora::Arena& arena();
  lora::Event record(lora::Stream);
  void synchronize();
  std::int64_t nanoseconds(lora::Event, lora::Event);
  void release(lora::Event);
};
struct There {};

namespace lora::kernel {
template <>
struct Gemm<Here> {
  template <class T, class Out>
  static void run(Here&, Form, View<Here, const T>, View<Here, const T>, View<Here, Out>, double, bool) {}
  template <class T>
  static void sum(Here&, ProductTerms<Here, T>, View<Here, const Accum<T>>, View<Here, T>, bool) {}
};
}  // namespace lora::kernel

void product(Here& dev, lora::View<Here, const float> here, lora::View<There, const float> there,
             lora::View<Here, float> c) {
#ifdef LORA_FAIL
  lora::kernel::gemm(dev, lora::kernel::Form::nt, here, there, c);
#else
  static_cast<void>(there);
  lora::kernel::gemm(dev, lora::kernel::Form::nt, here, here, c);
#endif
}
