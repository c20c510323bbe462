#pragma once

#include <string>
#include <string_view>

#include "lora/model/description/config_json.hpp"

namespace lora::model {

/// What the README.md of a model or an adapter says of layers without rotary embedding that transformers would not
/// obey, with the Python lines that make it; empty where there are none. `base`: what the model is called in the lines
/// before. tests/make/golden.py computes golden/no_rope with these lines.
inline std::string rotary_note(const Config& config, std::string_view base) {
  const auto layers = unwritable_no_rope_layers(config);
  if (layers.empty()) return {};
  std::string list;
  for (const Index layer : layers) list += concat(list.empty() ? "" : ", ", layer);
  return concat(
      "\nThese layers run without rotary embedding: ", list,
      ".\n`config.json` says so in `no_rope_layers`, which `lora` obeys in every command. transformers reads it\n"
      "for smollm3 only, and not for ",
      config.model_type,
      ": there these lines switch the rotation off, before the model is used. Other\nprograms compute something "
      "else.\n\n```python\nimport torch\n\n"
      "def without_rotation(module, args, kwargs):\n"
      "    cos, sin = kwargs[\"position_embeddings\"]\n"
      "    return args, {**kwargs, \"position_embeddings\": (torch.ones_like(cos), torch.zeros_like(sin))}\n\n"
      "for layer, rotates in zip(",
      base, ".model.layers, ", base, ".config.no_rope_layers):\n",
      "    if not rotates:\n"
      "        layer.self_attn.register_forward_pre_hook(without_rotation, with_kwargs=True)\n```\n");
}

}  // namespace lora::model
