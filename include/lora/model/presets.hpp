#pragma once

#include <string>
#include <string_view>

#include "lora/core/error.hpp"
#include "lora/core/scalar.hpp"
#include "lora/io/json.hpp"

namespace lora::model {

/// The shape of a Qwen3 model that is trained from scratch, with Qwen3's vocabulary and a head tied to the embedding.
struct Preset {
  std::string_view name;
  Index hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim;
};

//                                                              parameters: in all, and without the embedding
constexpr Preset presets[] = {{"tiny", 128, 640, 8, 4, 2, 32},       //  21,809,792      2,361,984
                              {"small", 256, 768, 8, 4, 2, 64},      //  45,192,448      6,296,832
                              {"medium", 512, 1408, 8, 8, 4, 64},    // 101,393,920     23,602,688
                              {"large", 768, 1920, 16, 12, 4, 64}};  // 212,658,944     95,972,096

/// Its config.json.
/// Throws   ConfigError for a name that none has, with those that there are
io::Json preset_config(std::string_view name);

}  // namespace lora::model

#ifndef LORA_COMPILED
#  include "lora/model/presets.ipp"
#endif
