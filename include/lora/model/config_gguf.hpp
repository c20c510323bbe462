#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/gguf.hpp"
#include "lora/model/config.hpp"

namespace lora::model {

/// Which layers rotate in a model of a GGUF file: it has no key for that, the architecture says it. Of smollm3 all but
/// every fourth.
std::vector<bool> rotates_in_gguf(std::string_view architecture, Index layers);

/// The window of each layer of such a model, where those that slide have this one: of gemma2 all but every second, of
/// gemma3 all but every sixth, of others none.
std::vector<Index> windows_in_gguf(std::string_view architecture, Index layers, Index window);

/// Config::query_scalar of gemma2 and gemma3_text as llama.cpp takes it from the number of layers.
double gguf_query_scalar(const Config& config);

/// What GGUF calls the architecture of a model.
std::string_view gguf_architecture(const Config& config);

/// A model's config from a GGUF file's metadata and tensors (architectures gemma2, gemma3, llama, phi3, qwen2, qwen3,
/// smollm3).
Config read_config(const io::Gguf& file);

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/config_gguf.ipp"
#endif
