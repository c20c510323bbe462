#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/formats/json.hpp"
#include "lora/model/description/config.hpp"

namespace lora::model {

/// Writes the rotary settings of `config` into its base's config.json: theta where the file has it, and no_rope_layers
/// if they differ.
void write_rotary(io::Json& json, const Config& config, const std::string& where);

/// The layers without rotary embedding, if transformers doesn't obey a config.json of this model type that has them.
std::vector<Index> unwritable_no_rope_layers(const Config& config);

/// What transformers calls a model of this type, with its head.
std::string_view class_of(const Config& config);

/// A config.json for a model that has none (GGUF); `where` names it in errors. no_rope_layers are written for every
/// model type, although transformers reads them only for smollm3.
/// Throws   FormatError for what a config.json of this type can't express
io::Json to_json(const Config& config, std::string_view dtype, const std::string& where);

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/description/config_json.ipp"
#endif
