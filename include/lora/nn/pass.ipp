#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lora/core/config.hpp"
#include "lora/nn/pass.hpp"

namespace lora::nn {

LORA_INLINE StagedRows::StagedRows(const Rows& rows) : segments_(rows.segments.begin(), rows.segments.end()) {
  const auto n = rows.tokens.size();
  const auto fits = [n](Rows::Numbers numbers) { return numbers.empty() || numbers.size() == n; };
  if (rows.positions.size() != n || !fits(rows.sequence_index) || !fits(rows.cache_rows))
    fail<ShapeError>("[pass] ", n, " tokens, ", rows.positions.size(), " positions, ", rows.sequence_index.size(),
                     " sequence_index, ", rows.cache_rows.size(), " cache rows");
  tokens = add(rows.tokens);
  positions = add(rows.positions);
  sequence_index = add(rows.sequence_index);
  cache_rows = add(rows.cache_rows);
  labelled = add(rows.labelled);
  labels = add(rows.labels);
  for (std::size_t i = 0; i < n; ++i) {
    if (rows.positions[i] < 0) fail<ShapeError>("[pass] row ", i, " has the position ", rows.positions[i]);
    max_position_ = std::max(max_position_, Index{rows.positions[i]});
  }
}

LORA_INLINE StagedRows::Part StagedRows::add(Rows::Numbers numbers) {
  const Part part{static_cast<Index>(block_.size()), static_cast<Index>(numbers.size())};
  block_.insert(block_.end(), numbers.begin(), numbers.end());
  block_.resize(static_cast<std::size_t>(part.begin + part_size(part.count)));
  return part;
}

}  // namespace lora::nn
