#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "lora/io/gguf.hpp"
#include "lora/model/config.hpp"

namespace lora::model {

/// A model's config from a GGUF file's metadata and tensors (architectures llama, qwen2, qwen3).
Config read_config(const io::Gguf& file);

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/config_gguf.ipp"
#endif
