#pragma once

#include <span>

#include "lora/core/config.hpp"
#include "lora/model/weights/random_weights.hpp"

namespace lora::model {

LORA_INLINE RandomWeights::RandomWeights(Config config, std::uint64_t seed) : config_(std::move(config)), seed_(seed) {
  const double range = config_.initializer_range;
  if (!(range > 0) || !std::isfinite(range))
    fail<ConfigError>("initializer_range: given ", range, "; expected a number above 0");
  if (!config_.pad_token_id) return;
  const Index id = *config_.pad_token_id, v = config_.vocab_size;
  if (id < -v || id >= v)
    fail<ConfigError>("pad_token_id: given ", id, "; expected a token of the model's vocabulary of ", v);
  padding_ = id < 0 ? id + v : id;
}

LORA_INLINE ProvidedTensor RandomWeights::provide(const TensorInfo& info) const {
  using Kind = TensorInfo::Kind;
  const bool vector = info.kind == Kind::norm || info.kind == Kind::bias;
  const float first = info.kind == Kind::norm ? static_cast<float>(1 - config_.norm_offset) : 0.0f;
  const auto values = std::make_shared<std::vector<float>>(static_cast<std::size_t>(info.shape.count()), first);
  if (!vector) fill_normal(*values, mix_key(seed_, text_hash(info.name)));
  if (info.kind == Kind::embedding && padding_ >= 0)
    std::fill_n(values->begin() + padding_ * info.shape[1], info.shape[1], 0.0f);
  return {DType::f32, std::as_bytes(std::span(*values)), values, 0};
}

LORA_INLINE void RandomWeights::fill_normal(std::vector<float>& values, std::uint64_t key) const {
  Random random(key);
  for (std::size_t i = 0; i < values.size(); i += 2) {
    const double u = 1 - static_cast<double>(random.uniform()), v = static_cast<double>(random.uniform());
    const double radius = config_.initializer_range * std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * v;
    values[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < values.size()) values[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
}

}  // namespace lora::model
