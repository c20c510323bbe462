#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/formats/json_view.hpp"
#include "lora/model/description/module_pattern.hpp"
#include "lora/model/description/tensors.hpp"
#include "lora/nn/low_rank_adapter.hpp"

namespace lora::model {

/// LoRA settings in PEFT's terms.
struct AdapterConfig {
  Index rank = 8;
  double alpha = 16;
  double dropout = 0;
  bool rslora = false;
  std::vector<std::string> targets{};  ///< empty, without `modules`: every projection, "all-linear" in PEFT
  std::vector<std::pair<std::string, Index>>
      rank_pattern{};  ///< module name or its end → rank; the first that fits holds
  std::vector<std::pair<std::string, double>> alpha_pattern{};  ///< module name or its end → alpha; likewise
  std::vector<Index> layers{};                                  ///< layers_to_transform; empty: all
  std::vector<std::string> excluded{};                          ///< exclude_modules: module name or its end
  std::optional<std::set<std::string>> modules{};  ///< exactly these, where PEFT's own choice was a regular expression
  std::string target_expression{};                 ///< that expression, kept for saving
  std::string exclude_expression{};                ///< exclude_modules as a regular expression, kept likewise
  std::vector<std::string> whole_modules{};        ///< modules_to_save: their names' ends; trained in full
  std::string base_model{};                        ///< base_model_name_or_path

  bool targets_module(Index layer, std::string_view projection) const;

  /// Whether a tensor of the model's own trains beside the factors and is kept with them: those of whole_modules. A
  /// tied head is the embedding.
  bool trains_whole(const TensorInfo& info) const;

  /// Rank 0 where the projection stays frozen.
  nn::LoraRank rank_of(Index layer, std::string_view projection) const;

  static bool ends_path(std::string_view path, std::string_view end);
};

namespace detail {

constexpr Index max_rank = 1 << 16;

}  // namespace detail

/// Reads adapter_config.json's content.
/// Throws   FormatError naming the field, for another PEFT type or a variant that is not supported
AdapterConfig parse_adapter_config(const io::Json& content, const std::string& where);

/// Puts the names of a model's projections where `targets` stands for all of them.
/// Throws   ConfigError for a target that fits none of the model's modules
void name_targets(AdapterConfig& adapter, const Config& config);

/// adapter_config.json as PEFT reads it.
io::Json to_json(const AdapterConfig& config);

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/description/adapter_config.ipp"
#endif
