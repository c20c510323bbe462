#pragma once

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>

#include "lora/io/files/atomic_folder.hpp"
#include "lora/io/files/read_file.hpp"
#include "lora/tokenizer/parts.hpp"

namespace lora::run {

/// Part of the README.md of every adapter that a run writes, which identifies it as a run's.
constexpr std::string_view adapter_card_head =
    "library_name: peft\npipeline_tag: text-generation\ntags:\n- lora\n---\n\n# LoRA adapter\n\n";
/// Part of that of every model.
constexpr std::string_view model_card_head =
    "library_name: transformers\npipeline_tag: text-generation\n---\n\n# Fine-tuned model\n\n";

/// What in the folder of an adapter or a model was not written by a run, or empty. A run's folder has a run's README.md
/// and only files that runs write; with an edited README.md it is the user's.
/// `more`: further files that a run writes into this kind of folder.
std::string stranger_beside_result(const io::Path& folder, std::initializer_list<std::string_view> more);
inline std::string stranger_in_result(const io::Path& folder) { return stranger_beside_result(folder, {}); }

}  // namespace lora::run

#ifndef LORA_COMPILED
#  include "lora/run/result_proof.ipp"
#endif
