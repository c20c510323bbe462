#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/io/formats/gguf.hpp"
#include "lora/model/description/config.hpp"

namespace lora::model {

/// Which layers rotate in a model of a GGUF file: it has no key for that, the architecture says it.
std::vector<bool> rotates_in_gguf(const ModelType& type, Index layers);

/// The window of each layer of such a model, where those that slide have this one.
std::vector<Index> windows_in_gguf(const ModelType& type, Index layers, Index window);

/// Config::query_scalar of gemma2 and gemma3_text as llama.cpp takes it from the number of layers.
double gguf_query_scalar(const Config& config);

/// What GGUF calls the architecture of a model.
std::string_view gguf_architecture(const Config& config);

/// A model's config from a GGUF file's metadata and tensors, of an architecture of gguf_architecture_list.
Config read_config(const io::Gguf& file);

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/description/config_gguf.ipp"
#endif
