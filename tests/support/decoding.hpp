#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "lora/core/random.hpp"
#include "lora/model/decoder/decoder.hpp"
#include "support/gradcheck.hpp"

namespace lora::test {

using Tokens = std::vector<std::int32_t>;

/// Logits of the chosen rows of one sequence, row after row; of all where none is chosen.
template <AnyDevice D, class T>
std::vector<Accum<T>> logits_of(D& dev, model::Decoder<D, T>& decoder, const Tokens& tokens, Tokens chosen = {}) {
  Tokens positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  if (chosen.empty()) chosen = positions;
  const std::vector<kernel::Segment> segments{{0, static_cast<Index>(tokens.size())}};
  const nn::Pass<D, T> pass(dev, nn::Batch{tokens, positions, {}, segments});
  return decoder.logits(dev, pass, chosen);
}

/// Gives an attached adapter values in ±size, so that neither A nor B is zero.
template <AnyDevice D, class T>
void fill_adapter(D& dev, model::Decoder<D, T>& decoder, double size = 1) {
  std::uint64_t key = 0;
  decoder.params().for_each([&](const nn::ParamRef<D, T>& param) {
    Random random(mix_key(3, ++key));
    for (auto& value : elements(param.value))
      value = static_cast<Accum<T>>(size * (2 * static_cast<double>(random.uniform()) - 1));
  });
  decoder.params().refresh(dev);
}

/// ‖a − b‖ / ‖b‖; infinite where the sizes differ or b is nothing.
template <class A, class B>
double distance(const std::vector<A>& a, const std::vector<B>& b) {
  double difference = 0, norm = 0;
  if (a.size() != b.size()) return INFINITY;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return norm > 0 ? std::sqrt(difference / norm) : INFINITY;
}

}  // namespace lora::test
