#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numbers>
#include <utility>
#include <vector>

#include "lora/core/hash.hpp"
#include "lora/core/random.hpp"
#include "lora/model/weights/tensor_provider.hpp"

namespace lora::model {

/// The weights that training from scratch starts with: projections, embedding and head normal with mean 0 and standard
/// deviation `initializer_range`, the embedding's row of the padding token 0, biases 0, norms 1, all float32. Each
/// tensor's numbers depend on the seed and its name only.
/// Source   transformers, PreTrainedModel._init_weights
class RandomWeights : public TensorProvider {
 public:
  /// Throws   ConfigError for an `initializer_range` or a `pad_token_id` of the config that can't be meant
  RandomWeights(Config config, std::uint64_t seed);

  const Config& config() const override { return config_; }
  void finish() const override {}

  ProvidedTensor provide(const TensorInfo& info) const override;

 private:
  // Pairs of normal numbers from pairs of uniform ones. Source   Box and Muller 1958
  void fill_normal(std::vector<float>& values, std::uint64_t key) const;

  Config config_;
  std::uint64_t seed_;
  Index padding_ = -1;  // the embedding's row that is 0, if any
};

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/weights/random_weights.ipp"
#endif
