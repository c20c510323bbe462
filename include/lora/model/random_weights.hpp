#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <numbers>
#include <utility>
#include <vector>

#include "lora/core/hash.hpp"
#include "lora/core/random.hpp"
#include "lora/model/tensor_provider.hpp"

namespace lora::model {

/// The weights that training from scratch starts with: projections, embedding and head normal with mean 0 and standard
/// deviation `initializer_range`, biases 0, norms 1, all float32. Each tensor's numbers depend on the seed and its name
/// only.
/// Source   transformers, PreTrainedModel._init_weights
class RandomWeights : public TensorProvider {
 public:
  RandomWeights(Config config, std::uint64_t seed, double initializer_range = 0.02)
      : config_(std::move(config)), seed_(seed), range_(initializer_range) {
    if (!(range_ > 0) || !std::isfinite(range_))
      fail<ConfigError>("initializer_range: given ", range_, "; expected a number above 0");
  }

  const Config& config() const override { return config_; }
  void finish() const override {}

  ProvidedTensor provide(const TensorInfo& info) const override {
    using Kind = TensorInfo::Kind;
    const bool vector = info.kind == Kind::norm || info.kind == Kind::bias;
    const auto values = std::make_shared<std::vector<float>>(static_cast<std::size_t>(info.shape.count()),
                                                             info.kind == Kind::norm ? 1.0f : 0.0f);
    if (!vector) fill_normal(*values, mix_key(seed_, text_hash(info.name)));
    return {DType::f32, std::as_bytes(std::span(*values)), values, 0};
  }

 private:
  // Pairs of normal numbers from pairs of uniform ones. Source   Box and Muller 1958
  void fill_normal(std::vector<float>& values, std::uint64_t key) const {
    Random random(key);
    for (std::size_t i = 0; i < values.size(); i += 2) {
      const double u = 1 - static_cast<double>(random.uniform()), v = static_cast<double>(random.uniform());
      const double radius = range_ * std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * v;
      values[i] = static_cast<float>(radius * std::cos(angle));
      if (i + 1 < values.size()) values[i + 1] = static_cast<float>(radius * std::sin(angle));
    }
  }

  Config config_;
  std::uint64_t seed_;
  double range_;
};

}  // namespace lora::model
