#pragma once

#include "lora/core/config.hpp"
#include "lora/model/weights/generation_config.hpp"
#include "lora/model/weights/stop_ids.hpp"

namespace lora::model {

LORA_INLINE std::vector<std::int32_t> stop_ids_of(const Source& source) {
  const auto file = generation_config_of(source);
  if (!file) return source.config().eos_token_ids;
  const io::JsonFile json(*file);
  if (!json->has("eos_token_id")) return source.config().eos_token_ids;
  auto ids = ids_of(json.view(), "eos_token_id");
  check_ids("eos_token_id", ids, file->native());
  return ids;
}

LORA_INLINE std::optional<std::int32_t> id_of_end(const tokenizer::Tokenizer& tokenizer, const std::string& end) {
  const auto ids = end.empty() ? std::vector<std::int32_t>() : tokenizer.encode(end).ids;
  return ids.size() == 1 ? std::optional(ids[0]) : std::nullopt;
}

LORA_INLINE std::vector<std::int32_t> stop_ids_with(const Source& source, std::optional<std::int32_t> end) {
  std::vector<std::int32_t> ids = stop_ids_of(source);
  if (end && std::find(ids.begin(), ids.end(), *end) == ids.end()) ids.insert(ids.begin(), *end);
  return ids;
}

LORA_INLINE void write_stop_ids(const Source& source, const std::vector<std::int32_t>& ids, const io::Path& folder) {
  const auto own = generation_config_of(source);
  const auto file = folder / "generation_config.json";
  if (ids.empty()) {
    if (own) io::copy_file(*own, file);
    return;
  }
  io::Json config = io::read_json(folder / "config.json");
  config["eos_token_id"] = ids;
  io::write_changed_json(folder / "config.json", config, folder / "config.json");
  io::Json generation = own ? io::read_json(*own) : io::Json::object();
  // Without such a file transformers takes these from config.json.
  for (const char* name : {"bos_token_id", "pad_token_id"})
    if (const io::Json* id = io::json_find(config, name); !own && id != nullptr && !id->is_null())
      generation[name] = *id;
  generation["eos_token_id"] = ids;
  io::write_changed_json(file, generation, own ? *own : file);
}

}  // namespace lora::model
