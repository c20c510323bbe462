#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "lora/core/error.hpp"
#include "lora/core/log.hpp"
#include "lora/data/batches/encode.hpp"
#include "lora/inputs/find_model.hpp"
#include "lora/io/files/file.hpp"
#include "lora/io/formats/gguf.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/model/decoder/adapter.hpp"
#include "lora/model/description/presets.hpp"
#include "lora/model/weights/stop_ids.hpp"
#include "lora/model/weights/weights.hpp"
#include "lora/settings/config.hpp"
#include "lora/settings/llama_factory.hpp"
#include "lora/tokenizer/chat_files.hpp"
#include "lora/tokenizer/tokenizer.hpp"

namespace lora::inputs {

/// All ids that end an answer: those of the model's own files, the end that training has taught it since, as the files
/// of its adapter have it, and the template's end of turn. A model that the adapter is merged into stops at the same.
std::vector<std::int32_t> stop_ids(const model::Source& source, const tokenizer::Tokenizer& tokenizer,
                                   const std::optional<data::ChatTemplate>& chat_template,
                                   const tokenizer::ChatFiles& taught = {});

/// The tokenizer of a model folder or .gguf file; nothing if the folder has no tokenizer files or the file no tokenizer
/// keys.
/// Throws   FormatError
std::optional<tokenizer::Tokenizer> find_tokenizer(const io::Path& model);

[[noreturn]] void fail_without_tokenizer(const io::Path& model);

/// The model that training from scratch begins with: of a preset, or of a folder's config.json.
/// Throws   ConfigError for a tokenizer that has more words than the preset; FormatError, IoError
model::Source initial_source(const settings::Config& config);

/// Opens a run's model and applies the rotary settings of the keys and of the adapter, and gives it a head of its own
/// where the adapter has one.
/// Throws   ConfigError for a layer that doesn't exist, or a key that contradicts the adapter
model::Source open_source(const settings::Config& config);

/// Whether the model computes no sequence longer than nn::longest_rotation, of longrope.
inline bool limits_length(const model::Config& config) {
  return config.rope.scaling == nn::RopeConfig::Scaling::longrope;
}

/// Why a model with longrope computes no sequence of more tokens than nn::longest_rotation.
std::string text_of_longest(const model::Config& config);

/// `what` begins the sentence: "d.jsonl:7:".
/// Throws   ConfigError for a sequence longer than those that the model's rope scaling can compute
void expect_supported_length(const model::Config& config, Index length, std::string_view what);

/// The tokens of a record's prompt.
/// Throws   ConfigError naming the record, as expect_supported_length; FormatError
std::vector<std::int32_t> supported_prompt(const model::Config& config, const data::Encoder& encoder,
                                           const data::Sample& sample);

/// Warns about a sequence longer than the model's context.
void warn_of_length(const model::Config& config, Index length, std::string_view what);

/// What the adapter of a run has learned of conversations, as its folder says; nothing without one. An end that is its
/// base's is not its own where its template ends turns with another.
tokenizer::ChatFiles chat_files_of_adapter(const settings::Config& config, const tokenizer::Tokenizer& tokenizer);

/// The template of a run's conversations: the key's, else the one that its adapter was trained with, else the model's
/// own. `adapter`: as its folder says. Warns where the adapter was trained with another, or with one that is not known.
/// Throws   ConfigError that lists the choices; FormatError for a marker that the tokenizer cuts into pieces
data::ChatTemplate template_of(const settings::Config& config, const tokenizer::Tokenizer& tokenizer,
                               const tokenizer::ChatFiles& adapter);

/// Rejects template keys that have no effect with this template, or without one.
/// Throws   ConfigError
void refuse_unused_by(const std::optional<data::ChatTemplate>& chat_template, const settings::Config& config);

data::RenderOptions render_options(const settings::Config& config);

}  // namespace lora::inputs

#ifndef LORA_COMPILED
#  include "lora/inputs/model_files.ipp"
#endif
