#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lora/io/files/file.hpp"
#include "lora/io/formats/json_view.hpp"
#include "lora/model/weights/weights.hpp"
#include "lora/tokenizer/tokenizer.hpp"

namespace lora::model {

/// The ids at which a model's own files end an answer, as transformers has them: eos_token_id of
/// generation_config.json, else of config.json. Throws   FormatError
std::vector<std::int32_t> stop_ids_of(const Source& source);

/// The id of an end of answers that training taught, "" for none; nothing where it is no single token.
std::optional<std::int32_t> id_of_end(const tokenizer::Tokenizer& tokenizer, const std::string& end);

/// Where a model stops that was taught this end: there first, and where its base does.
std::vector<std::int32_t> stop_ids_with(const Source& source, std::optional<std::int32_t> end);

/// Writes the generation_config.json of a model folder, whose config.json stands there. `ids`: where the model stops
/// now, which both then say; empty: as its base, whose file, if any, is copied.
void write_stop_ids(const Source& source, const std::vector<std::int32_t>& ids, const io::Path& folder);

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/weights/stop_ids.ipp"
#endif
