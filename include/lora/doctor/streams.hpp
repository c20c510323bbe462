#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "lora/doctor/trial.hpp"
#include "lora/kernel/elementwise.hpp"
#include "lora/tensor/page_locked.hpp"
#include "lora/tensor/tensor.hpp"

namespace lora::doctor::detail {

/// Each round copies numbers to the device in one stream, changes them by kernels in the other and copies them back in
/// the first, all in the same memory: a stream that does not wait sees the numbers of the round before. Nothing but
/// events orders the two; they are released at once, and recorded again while the other stream still waits for them.
/// Large copies, issued first, keep both streams behind the host.
inline constexpr auto copies_and_kernels = []<class D, class T>(Trial<D, T>& t) {
  constexpr Index rounds = 100, count = 8192, apart = 64, load_copies = 12;
  constexpr std::size_t bytes = count * sizeof(T), load_bytes = std::size_t{32} << 20;
  const auto locked = [&](Index numbers) {
    return PageLocked<D>(t.dev, static_cast<std::size_t>(numbers) * sizeof(T));
  };
  const auto span_of = [](const PageLocked<D>& memory) {
    return std::span(reinterpret_cast<T*>(memory.data()), memory.bytes() / sizeof(T));
  };
  const PageLocked<D> source = locked(count + rounds * apart), target = locked(rounds * count);
  for (std::size_t i = 0; T & number : span_of(source)) {  // a round's are other ones at every place
    number = T(static_cast<float>((i % apart + 7 * (i / apart)) % 128));
    ++i;
  }
  const PageLocked<D> load(t.dev, load_bytes);
  std::fill_n(load.data(), load.bytes(), std::byte{1});
  Tensor<D, std::byte> loaded(t.dev, static_cast<Index>(load_bytes));
  const View<D, T> x = t.room(1, count), y = t.room(1, count);
  const auto hand_over = [&](Stream from, Stream to) { wait_and_release(t.dev, to, t.dev.record(from)); };
  t.launch([&] {
    for (Index i = 0; i < load_copies; ++i)
      t.dev.copy_from_host(loaded.view().data(), load.data(), load.bytes(), Stream::copy);
    for (Index round = 0; round < rounds; ++round) {
      t.dev.copy_from_host(x.data(), span_of(source).data() + round * apart, bytes, Stream::copy);
      hand_over(Stream::copy, Stream::compute);
      for (const double factor : {1.0, 3.0, -1.0, 2.0}) kernel::convert(t.dev, x, y, factor);
      hand_over(Stream::compute, Stream::copy);
      t.dev.start_copy_to_host(span_of(target).data() + round * count, y.data(), bytes, Stream::copy);
    }
  });
  std::vector<double> numbers;
  for (const T number : span_of(target)) numbers.push_back(static_cast<double>(static_cast<Accum<T>>(number)));
  t.result("numbers of each round", t.template given<T>(rounds, count, numbers), {0, 0});
};

}  // namespace lora::doctor::detail
