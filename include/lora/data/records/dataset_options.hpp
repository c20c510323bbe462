#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lora/core/scalar.hpp"

namespace lora::data {

/// How the records of a data set are read.
struct DatasetOptions {
  std::string text_column = "text";
  std::optional<Index> max_samples{};  ///< the first ones
  bool need_answer = true;             ///< false if the records are only prompts
  bool skip_empty_answers = false;     ///< leaves out records with an empty answer or text; else they are errors
  std::string label_field{};           ///< field that names a record's class; empty: none
  std::uint64_t seed = 0;              ///< of which records come once more than others, where a file has too few
};

}  // namespace lora::data
