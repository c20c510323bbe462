#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lora/core/config.hpp"
#include "lora/core/ignore_index.hpp"
#include "lora/nn/pass.hpp"

namespace lora::nn::detail {

LORA_INLINE PassBlock::PassBlock(const Batch& batch) {
  const std::size_t n = batch.tokens.size();
  const auto fits = [n](const auto& part) { return part.empty() || part.size() == n; };
  if (batch.positions.size() != n || !fits(batch.sequence_index) || !fits(batch.cache_rows) || !fits(batch.labels))
    fail<ShapeError>("[pass] ", n, " tokens, ", batch.positions.size(), " positions, ", batch.sequence_index.size(),
                     " sequence_index, ", batch.cache_rows.size(), " cache rows, ", batch.labels.size(), " labels");
  for (std::size_t i = 0; i < n; ++i) {
    if (batch.positions[i] < 0) fail<ShapeError>("[pass] row ", i, " has the position ", batch.positions[i]);
    max_position = std::max(max_position, Index{batch.positions[i]});
  }
  std::vector<std::int32_t> rows, tokens_there;
  for (std::size_t i = 0; i < batch.labels.size(); ++i) {
    if (batch.labels[i] == ignore_index) continue;
    rows.push_back(static_cast<std::int32_t>(i));
    tokens_there.push_back(batch.labels[i]);
  }
  tokens = add(batch.tokens);
  positions = add(batch.positions);
  sequence_index = add(batch.sequence_index);
  cache_rows = add(batch.cache_rows);
  labeled = add(rows);
  labels = add(tokens_there);
}

LORA_INLINE PassBlock::Part PassBlock::add(std::span<const std::int32_t> part) {
  const Part result{static_cast<Index>(numbers.size()), static_cast<Index>(part.size())};
  numbers.insert(numbers.end(), part.begin(), part.end());
  numbers.resize(static_cast<std::size_t>(result.begin + part_size(result.count)));
  return result;
}

}  // namespace lora::nn::detail
